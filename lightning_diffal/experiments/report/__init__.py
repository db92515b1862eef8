"""Result files -> one self-contained page and its pictures."""

from lightning_diffal.experiments.report.page import report_on

__all__ = ["report_on"]
