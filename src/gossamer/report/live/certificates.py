"""The certificate of a topology as pages and metrics show it."""

from collections.abc import Mapping
from typing import Any

from gossamer.report.live.view import CertificateView
from gossamer.runs.records import Description
from gossamer.runs.run import Run


def view_certificate(run: Run) -> CertificateView:
    """The certificate of a run's (first) topology; of shares that were cut, what was planned of it."""
    about: Description = run.description
    holds = {} if run.full_deployment is None else run.full_deployment.certificate.assumptions.holds
    return {
        "holds": dict(holds),
        "spectral_radius": about["spectral_radius"],
        "needed_links": about["num_links"] - about["added_links"],
        "added_links": about["added_links"],
        "edges_kept": about["edges_kept"],
        "edges_relayed": about["edges_relayed"],
    }


def view_stored_certificate(stored: Mapping[str, Any], edges_kept: float, edges_relayed: float) -> CertificateView:
    """The certificate of a run directory's topology.json."""
    return {
        "holds": {str(name): bool(value) for name, value in stored["holds"].items()},
        "spectral_radius": float(stored["spectral_radius"]),
        "needed_links": len(stored["needed_links"]),
        "added_links": len(stored["added_links"]),
        "edges_kept": edges_kept,
        "edges_relayed": edges_relayed,
    }
