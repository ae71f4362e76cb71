"""Views with stable names and columns, for programs that read the database themselves."""

from __future__ import annotations

from sqlalchemy import Connection

NUMBERS = {
    "sqlite": "CASE WHEN json_type(configs.params, '$.{0}') IN ('integer', 'real') "
    "THEN json_extract(configs.params, '$.{0}') END",
    "postgresql": "CASE WHEN json_typeof(configs.params -> '{0}') = 'number' "
    "THEN (configs.params ->> '{0}')::double precision END",
}
"""A parameter of the regularizer if it is a number; a plug-in's may be anything."""

LARGEST_RATIO = {
    "sqlite": "SELECT max(value) FROM json_each(configs.params) "
    "WHERE substr(key, -6) = '.ratio' AND type IN ('integer', 'real')",
    "postgresql": "SELECT max(value::text::double precision) FROM json_each(configs.params) "
    "WHERE right(key, 6) = '.ratio' AND json_typeof(value) = 'number'",
}
"""The largest ratio of a composition's parts, whose parameters are such as ``dropkey.ratio``."""

HOURS = {
    "sqlite": "max(0.0, (julianday(coalesce(attempts.ended_at, 'now')) - julianday(attempts.started_at)) * 24)",
    "postgresql": "greatest(0.0, extract(epoch FROM coalesce(attempts.ended_at::timestamptz, now()) "
    "- attempts.started_at::timestamptz)::double precision / 3600)",
}
"""The duration of an attempt; a running one lasts until now."""

RESCALE = {"sqlite": "json_extract(configs.params, '$.rescale')", "postgresql": "configs.params ->> 'rescale'"}

METRIC = "CASE WHEN substr(metrics.name, 1, 5) = 'test/' THEN substr(metrics.name, 6) ELSE metrics.name END"
"""The metric as `dropbench results` prints it."""


def create_views(connection: Connection) -> None:
    """Create ``v_trials``, ``v_results``, ``v_curves`` and ``v_suites``."""
    dialect = connection.dialect.name
    trial = f"""
        trials.id AS trial_id, trials.config_id, configs.task, configs.data, configs.model, configs.regularizer,
        coalesce({NUMBERS[dialect].format("ratio")}, ({LARGEST_RATIO[dialect]})) AS ratio,
        {NUMBERS[dialect].format("window")} AS window_size,
        configs.schedule, configs.align, configs.preset, configs.params, configs.overrides, trials.seed, trials.state
    """
    last = f"{RESCALE[dialect]} AS rescale, configs.fingerprint, trials.libraries, configs.result_versions"
    configs = "JOIN configs ON configs.id = trials.config_id"
    queries = {"v_trials": f"SELECT {trial}, {_costs(dialect)}, {last} FROM trials {configs}"}
    for view, step, steps in (("v_results", "", "= -1"), ("v_curves", "metrics.step,", ">= 0")):
        queries[view] = f"""
            SELECT {trial}, {METRIC} AS metric, {step} metrics.value, {last} FROM metrics
            JOIN trials ON trials.id = metrics.trial_id {configs} WHERE metrics.step {steps}
        """
    queries["v_suites"] = """
        SELECT DISTINCT memberships.trial AS trial_id, requests.suite FROM memberships
        JOIN requests ON requests.id = memberships.request WHERE requests.suite IS NOT NULL
    """
    for view, query in queries.items():  # text() would take colons for parameters
        connection.exec_driver_sql(f"CREATE VIEW {view} AS {' '.join(query.split())}")


def _costs(dialect: str) -> str:
    """Return the cost columns of a trial, each a subquery, which is not evaluated if it is not selected."""

    def of_attempts(expression: str, name: str) -> str:
        return f"(SELECT {expression} FROM attempts WHERE attempts.trial_id = trials.id) AS {name}"

    hours = HOURS[dialect]
    return ", ".join(
        [
            "trials.reason",
            of_attempts("count(*)", "attempts"),
            of_attempts(f"coalesce(sum({hours} * coalesce(attempts.gpus, 0)), 0.0)", "gpu_hours"),
            of_attempts(f"coalesce(sum({hours} * coalesce(attempts.cpus, 1)), 0.0)", "cpu_hours"),
            of_attempts("coalesce(sum(attempts.waited_seconds), 0.0) / 3600", "waited_hours"),
            of_attempts("max(attempts.peak_memory_bytes)", "peak_memory_bytes"),
            of_attempts("min(attempts.started_at)", "started_at"),
            of_attempts("max(attempts.ended_at)", "ended_at"),
            "trials.created_at",
            "trials.updated_at",
        ]
    )
