"""What a rank records and reports: the flight recorder, the watchdog, the start of a job."""
