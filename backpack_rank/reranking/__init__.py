"""Rankers over candidates: scores, dense retrieval, fused and recalibrated runs."""
