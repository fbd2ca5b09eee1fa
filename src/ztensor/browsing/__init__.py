"""A model in the terminal: its names as a list or a tree, and one tensor at a time beside them.

`lines.py` knows which lines there are and what is in one of them, and no terminal. `lists.py` draws
of many lines those that are seen. `app.py` puts them on the screen and computes in a thread, which
ends when its tensor is left. Only the last two import Textual; nothing else of the library does.

Texts of a file are escaped as everywhere, and given to Textual as `Text`, never as markup.
"""
