"""Find a browser, install one (`make suite SUITE=browser`), start it.

Only Debian's own package is installed, and only by root or with `sudo` that asks no password.
For others the command to run is printed, and nothing is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

NAMES = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable",
    "google-chrome",
)  # fmt: skip
INSTALL = (
    "apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120",
    "chromium-headless-shell",
)  # fmt: skip
ADVICE = "run `make suite SUITE=browser`, or install Chromium and set ZTENSOR_BROWSER to its path"


def found_browser() -> str | None:
    """Return the path of a browser: ZTENSOR_BROWSER, else the first of `NAMES` there is."""
    stated = os.environ.get("ZTENSOR_BROWSER")
    if stated:
        return shutil.which(stated)
    return next(filter(None, map(shutil.which, NAMES)), None)


def launched(chromium: Any, path: str) -> Any:
    """Return a running browser.

    It refuses its sandbox to root and lacks one in many containers; all pages it sees are ours.

    Args:
        chromium: Playwright's browser type.
        path: the browser's executable.
    """
    arguments = ["--disable-dev-shm-usage"]
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        try:
            return chromium.launch(executable_path=path, args=arguments)
        except Exception as error:
            if "sandbox" not in str(error):
                raise
    return chromium.launch(executable_path=path, args=[*arguments, "--no-sandbox"])


def main() -> int:
    """Install a browser unless one is installed already."""
    browser = found_browser()
    if browser is not None:
        print(f"browser: {browser}")
        return 0
    if shutil.which("apt-get") is None:
        print("no browser, so its tests are skipped: install Chromium, or set ZTENSOR_BROWSER")
        return 0
    rights = _rights()
    if rights is None:
        print(f"no browser, so its tests are skipped; as root, run: {' '.join(INSTALL)}")
        return 0
    # Without a network apt would try each of its servers for minutes.
    briefly = [
        f"-oAcquire::{name}" for name in ("http::Timeout=20", "https::Timeout=20", "Retries=1")
    ]
    subprocess.run([*rights, "apt-get", "update", "--quiet", *briefly], check=False)
    subprocess.run([*rights, *INSTALL, "--quiet", *briefly], check=False)
    browser = found_browser()
    print(f"browser: {browser}" if browser else f"apt-get has no browser here, {ADVICE}")
    return 0


def _rights() -> list[str] | None:
    """Return the words that run a command as root without questions, or None if that is refused."""
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return quiet
    if shutil.which("sudo") and not subprocess.run(["sudo", "-n", "true"], check=False).returncode:
        return ["sudo", "-n", *quiet]
    return None


if __name__ == "__main__":
    sys.exit(main())
