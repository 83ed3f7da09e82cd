module github.com/kiln-dev/kiln

go 1.26.4
