"""What a run's facts add up to: the reducer and what is shown of it. Pure: no clock, file, process or terminal."""
