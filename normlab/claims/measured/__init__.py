"""What claims compute beyond sweeps: functions from a seed to numbers, imported when they run."""
