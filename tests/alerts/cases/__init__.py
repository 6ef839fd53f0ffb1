"""A firing and a silent case for each alert, a sample a minute."""

from tests.alerts.cases import cluster, controller, serving, slo

CASES = (*slo.CASES, *serving.CASES, *controller.CASES, *cluster.CASES)
