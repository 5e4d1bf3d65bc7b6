package helpers // want revive
