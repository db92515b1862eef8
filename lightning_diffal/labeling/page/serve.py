"""`lightning-diffal label DIR`: the page for labels, served from this machine."""

import argparse
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning_diffal.labeling.corrections import apply_corrections
from lightning_diffal.labeling.page.session import Session
from lightning_diffal.pool.folder.folder_lock import lock
from lightning_diffal.pool.folder.repair import user_name

LOOPBACK = "127.0.0.1"


def add_label_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    label = commands.add_parser("label", help="answer the questions of a run on a page in the browser")
    label.add_argument("folder", type=Path, metavar="DIR", help="the folder that holds rounds.jsonl")
    label.add_argument("--audit", action="store_true", help="confirm or correct the labels that audit() suspects")
    label.add_argument("--who", default=None, help="who answers, for the ledger (default: the user's name)")
    label.add_argument("--host", default=LOOPBACK, help="address to listen on (%(default)s: this machine only)")
    label.add_argument("--port", type=int, default=0, help="port to listen on (default: any that is free)")
    label.add_argument("--no-browser", action="store_true", help="print the address, and do not open it")
    label.set_defaults(execute=label_run)


def label_run(given: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    try:
        import uvicorn  # noqa: PLC0415, an extra

        from lightning_diffal.labeling.page.app import make_app  # noqa: PLC0415, needs the extra
    except ImportError as error:
        raise ValueError(f"{error}. The page needs `pip install lightning-diffal[label]`.") from error
    session = Session(given.folder, given.who or user_name(), audit=given.audit)
    query = session.refresh()  # refuses what is not the folder of a run that asks people
    if query is None and given.audit:
        raise ValueError(f"{given.folder}: there is no audit here. audit() writes one.")
    with one_server(given.folder), listening(given.host, given.port) as server_socket:
        token = secrets.token_urlsafe(24)
        address = f"http://{netloc(given.host, server_socket.getsockname()[1])}/{token}/"
        if query is None:
            print(f"{given.folder} asks nothing at the moment. The next questions will appear on the page.")
        else:
            print(f"{len(query.remaining)} of {len(query.questions)} questions are open. Ctrl-C stops the server.")
        if given.host not in (LOOPBACK, "localhost", "::1"):
            print(
                f"--host {given.host}: everyone who can reach this machine and knows the address can see the items and "
                "answer, and the connection is not encrypted.",
                file=sys.stderr,
            )
        print(address, flush=True)
        if not given.no_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        config = uvicorn.Config(
            make_app(session, token, given.host), log_level="warning", access_log=False, lifespan="off"
        )
        try:
            uvicorn.Server(config).run([server_socket])
        except KeyboardInterrupt:
            print(f"\nStopped. All answers are in {given.folder}.", file=sys.stderr)
        apply_corrections(given.folder)  # if this is not reached, the run does so itself when it goes on
    return 0


def netloc(host: str, port: int) -> str:
    """The address to open: a name of this machine where the server listens on all of its addresses."""
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    if not 0 <= port < 2**16:
        raise ValueError(f"--port {port}: a number from 0 to {2**16 - 1} is needed; 0 is any that is free.")
    try:
        made = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ValueError(f"--host {host} --port {port}: this address cannot be listened on ({error}).") from error
    with made:
        yield made


@contextmanager
def one_server(folder: Path) -> Iterator[None]:
    """Refuse a second server for a folder: it would hand out the items that are open at the first."""
    file = os.open(folder / "label.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            lock(file)
        except OSError as error:
            raise ValueError(
                f"{folder} is served already. Open the address printed there; several people can use it at once."
            ) from error
        yield
    finally:
        os.close(file)
