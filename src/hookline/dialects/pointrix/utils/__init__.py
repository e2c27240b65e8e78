"""Registries and configs."""
