package auth

func runStormProcess() {}
