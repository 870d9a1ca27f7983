"""Metrics, their export and structured logs.  Layer: telemetry; knows nothing of the loop's parts.

Everything counts into plain numbers; OpenTelemetry is imported only where export is switched on.
"""
