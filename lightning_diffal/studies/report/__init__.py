"""Result files -> one self-contained HTML page and PNG figures."""

from lightning_diffal.studies.report.page import verdicts, write_report

__all__ = ["verdicts", "write_report"]
