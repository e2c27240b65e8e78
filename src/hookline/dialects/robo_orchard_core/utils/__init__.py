"""`robo_orchard_core.utils`: `hook`, `config` and `cli`."""
