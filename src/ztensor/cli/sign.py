"""`ztensor sign`: sign a file or a folder with a key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import ztensor
from ztensor.cli.options import FORCE, THREADS, Option
from ztensor.cli.spelling import count_text
from ztensor.cli.terminal import Terminal
from ztensor.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

OPTIONS = (
    Option("file", metavar="FILE", help="A file of any format, or a folder with a model."),
    Option("--key", metavar="KEY", required=True, help="The private key, in PEM."),
    Option(
        "--output",
        "-o",
        metavar="SIG",
        help="The signature; by default FILE.sig, for a folder model.sig in it.",
    ),
    Option(
        "--password-env",
        metavar="NAME",
        help="The environment variable with the password of the key.",
    ),
    Option(
        "--update",
        is_flag=True,
        help="Replace a signature by the same key; hash only files that it does not cover.",
    ),
    FORCE,
    THREADS,
)


def sign(terminal: Terminal, options: Namespace) -> None:
    """Sign a file or all files of a folder.

    The signature is a bundle of OpenSSF Model Signing: other programs for it verify whole files. Of
    .zt files it also covers the manifest and each component, for readers of a part of the data. The
    key is of one of the curves P-256, P-384 and P-521. Nothing is sent anywhere.

    Output:
      The signature's key, and how much was signed.

    JSON:
      file            the argument
      key             the fingerprint of the public key
      files           how many whole files were hashed
      kept            of how many files --update kept the digests
      components      how many components of .zt files were hashed
      signed          how many components the signature covers

    Safety:
      It never changes FILE. A folder with links is refused, a damaged .zt file too.

    Exit code:
      0 if it was signed, 2 if the key cannot be used, 4 if a .zt file is damaged.

    Examples:
      $ ztensor sign model.zt --key private.pem
        writes model.zt.sig
      $ ztensor verify model.zt --signed-by public.pem
        the receiver of both files does this
    """
    password = None
    if options.password_env is not None:
        password = os.environ.get(options.password_env)
        if password is None:
            raise UsageError(
                "the environment variable with the password is not set", found=options.password_env
            )
    try:
        with terminal.progress(os.path.basename(options.file)) as progress:
            report = ztensor.signing.sign(
                options.file,
                options.key,
                signature=options.output,
                password=password,
                update=options.update,
                overwrite=options.force,
                threads=options.threads,
                progress=progress,
            )
    except UsageError as error:
        if error.in_python is not None:
            error.hint = "--force replaces it, --update too if it is a signature by the same key"
        raise
    kept = f", {report.kept:,} kept" if report.kept else ""
    counts = f"{count_text(report.files, 'file')} hashed{kept}"
    components = count_text(report.signed, "component")
    terminal.line(f"{options.file}: signed by key {report.key}; {counts}; {components}")
    shown = ("key", "files", "kept", "components", "signed")
    terminal.result({"file": options.file} | {name: getattr(report, name) for name in shown})
