"""Result files -> one self-contained page and its pictures."""

from lightning_diffal.studies.report.page import report_on

__all__ = ["report_on"]
