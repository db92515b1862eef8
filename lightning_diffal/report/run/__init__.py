"""The folder of a run -> one self-contained HTML page and PNG figures."""

from lightning_diffal.report.run.page import write_run_report

__all__ = ["write_run_report"]
