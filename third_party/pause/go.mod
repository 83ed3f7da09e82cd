module github.com/kiln-dev/kiln/third_party/pause

go 1.26.4
