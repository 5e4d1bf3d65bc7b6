module example.test/lint

go 1.25
