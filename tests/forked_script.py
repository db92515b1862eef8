"""A script in a process of its own, with its own arguments, signals, output and exit code.

It is forked from the test's process, which has imported Lightning already: that takes five seconds of a processor. The
script of the README, the second rank of those of DDP and the notebook start from nothing.
"""

import logging
import os
import runpy
import signal
import sys
import traceback
import warnings
from subprocess import CompletedProcess

import torch


def run_script(path, *arguments, cwd=None):
    """Run a file as `python path arguments` would; returns what `subprocess.run` would return, with text."""
    command = [str(path), *map(str, arguments)]
    output, errors = (path.with_suffix(f".{name}.txt") for name in ("stdout", "stderr"))
    child = os.fork()
    if child == 0:
        as_a_script(command, output, errors, cwd)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return CompletedProcess(command, code, output.read_text(), errors.read_text())


def as_a_script(command, output, errors, cwd):
    """Never returns."""
    code = 1
    try:
        for number, file in ((1, output), (2, errors)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        # As in a fresh interpreter, where pytest has its own.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        for logger in logging.root.manager.loggerDict.values():
            for handler in getattr(logger, "handlers", ()):
                if isinstance(handler, logging.StreamHandler):
                    handler.setStream(sys.stderr)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        warnings.resetwarnings()
        torch.set_num_threads(1)
        if cwd is not None:
            os.chdir(cwd)
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except KeyboardInterrupt:
        code = 130
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
