"""The parts of `robo_orchard_core` that hooks and training scripts use: hooks, configs and the command line."""
