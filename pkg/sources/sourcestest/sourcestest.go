/*
Copyright 2026 The Kiln Authors

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package sourcestest packs valid and hostile archives for tests.
package sourcestest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Entry is one entry of an archive.
type Entry struct {
	Name, Content string

	// Link is the target of a symbolic link, and Hard that of a hard link.
	Link, Hard string

	// Mode is the type and mode of the entry.
	Mode fs.FileMode

	// Zeros is the number of zeros that replace Content.
	Zeros int64
}

// File returns a file.
func File(name, content string) Entry { return Entry{Name: name, Content: content} }

func (e Entry) content() io.Reader {
	if e.Zeros > 0 {
		return io.LimitReader(zeros{}, e.Zeros)
	}
	return strings.NewReader(e.Content)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Zip packs a .zip.
func Zip(entries ...Entry) []byte {
	buffer := &bytes.Buffer{}
	archive := zip.NewWriter(buffer)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.Name, Method: zip.Deflate}
		header.SetMode(0o644 | e.Mode)
		if e.Link != "" {
			header.SetMode(fs.ModeSymlink | 0o777)
			e.Content = e.Link
		}
		to, err := archive.CreateHeader(header)
		must(err)
		_, err = io.Copy(to, e.content())
		must(err)
	}
	must(archive.Close())
	return buffer.Bytes()
}

// TarGz packs a .tar.gz.
func TarGz(entries ...Entry) []byte {
	buffer := &bytes.Buffer{}
	packed := gzip.NewWriter(buffer)
	archive := tar.NewWriter(packed)
	for _, e := range entries {
		must(archive.WriteHeader(e.header()))
		if e.Hard == "" && e.Link == "" {
			_, err := io.Copy(archive, e.content())
			must(err)
		}
	}
	must(archive.Close())
	must(packed.Close())
	return buffer.Bytes()
}

func (e Entry) header() *tar.Header {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: e.Name, Mode: int64(0o644 | e.Mode.Perm()), Size: max(int64(len(e.Content)), e.Zeros)}
	switch {
	case e.Link != "":
		header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, e.Link, 0
	case e.Hard != "":
		header.Typeflag, header.Linkname, header.Size = tar.TypeLink, e.Hard, 0
	case strings.HasSuffix(e.Name, "/"):
		header.Typeflag = tar.TypeDir
	case e.Mode&fs.ModeDevice != 0:
		header.Typeflag, header.Devmajor, header.Devminor = tar.TypeBlock, 8, 0
	case e.Mode&fs.ModeCharDevice != 0:
		header.Typeflag, header.Devmajor, header.Devminor = tar.TypeChar, 1, 3
	case e.Mode&fs.ModeNamedPipe != 0:
		header.Typeflag = tar.TypeFifo
	}
	return header
}

// Hostile is a hostile archive and the expected error.
type Hostile struct {
	Archive []byte
	Want    string
}

var handler = File("handler.js", "module.exports = { main: () => 'unpacked' };\n")

// HostileArchives returns hostile archives by name, for the shipped limits with that
// maximum of files. Apart from one fault, each is a function.
func HostileArchives(files int) map[string]Hostile {
	archives := map[string]Hostile{}
	add := func(name, want string, entries ...Entry) {
		entries = append([]Entry{handler}, entries...)
		archives[name+".zip"] = Hostile{Zip(entries...), want}
		archives[name+".tar.gz"] = Hostile{TarGz(entries...), want}
	}
	add("absolute", `file "/tmp/escaped" in it has an absolute path`, File("/tmp/escaped", "x"))
	add("parent", `file "../escaped" in it has .. in its path`, File("../escaped", "x"))
	add("parent-below", `file "a/../../escaped" in it has .. in its path`, File("a/../../escaped", "x"))
	add("backslash", "has no name that can be used", File(`..\escaped`, "x"))
	add("whiteout", "deletes files of an image", File("node_modules/.wh..wh..opq", ""))
	add("link-out", `link "out" in it leads out of it, to "../../etc/passwd"`, Entry{Name: "out", Link: "../../etc/passwd"})
	add("link-absolute", `link "out" in it leads out of it, to "/etc/passwd"`, Entry{Name: "out", Link: "/etc/passwd"})
	add("link-down-and-out", `link "out" in it leads out of it, to "a/../../etc"`, Entry{Name: "out", Link: "a/../../etc"})
	add("link-no-name", "a link in it has no name", Entry{Name: ".", Link: "handler.js"})
	add("link-long", `link "long" in it leads to a name of more than 1024 characters`, Entry{Name: "long", Link: strings.Repeat("./", 2048)})
	add("through-link", `it has "out" both as a folder and as a file or link`, Entry{Name: "out", Link: "/tmp"}, File("out/escaped", "x"))
	add("duplicate", `it has two files named "handler.js"`, File("handler.js", "module.exports = {};"))
	add("duplicate-spelt", `it has two files named "handler.js"`, File("./handler.js", "x"))
	add("file-and-folder", `it has "a" both as a folder and as a file or link`, File("a", "x"), File("a/b", "y"))
	add("ratio", "it unpacks to more than 100 times its", Entry{Name: "zeros", Zeros: 64 << 20})
	tooMany := fmt.Sprintf("it has more than %d files and folders (max-unpacked-files in config-build)", files)
	add("count", tooMany, many(files)...)
	add("folders", tooMany, deep(files/60+1)...)
	add("depth", "in it is nested in more than 64 folders", File(strings.Repeat("a/", 65)+"x", ""))
	for name, mode := range map[string]fs.FileMode{"device": fs.ModeDevice, "character-device": fs.ModeCharDevice, "pipe": fs.ModeNamedPipe} {
		archives[name+".tar.gz"] = Hostile{TarGz(handler, Entry{Name: "special", Mode: mode}), `"special" in it is not a file, folder or link`}
	}
	archives["device.zip"] = Hostile{Zip(handler, Entry{Name: "special", Mode: fs.ModeDevice}), `"special" in it is not a file, folder or link`}
	archives["hard-link-out.tar.gz"] = Hostile{TarGz(handler, Entry{Name: "out", Hard: "../../etc/passwd"}), `file "../../etc/passwd" in it has .. in its path`}
	archives["hard-link-to-link.tar.gz"] = Hostile{
		TarGz(handler, Entry{Name: "a", Link: "/etc/passwd"}, Entry{Name: "out", Hard: "a"}), `link "out" in it leads to "a", which is not a file in it`,
	}
	archives["page.zip"] = Hostile{[]byte("<!DOCTYPE html><html><body>Please log in</body></html>"), "it is not a .zip or .tar.gz: its first bytes are those of text/html"}
	archives["nothing.zip"] = Hostile{nil, "it is empty"}
	archives["no-handler.zip"] = Hostile{Zip(File("index.js", ""), File("README.md", "")), `at its top, which has: "README.md", "index.js"`}
	archives["no-files.zip"] = Hostile{Zip(), "it is empty; it must have handler.js"}
	archives["cut.zip"] = Hostile{cut(Zip(handler)), "it is truncated or damaged"}
	archives["cut.tar.gz"] = Hostile{cut(TarGz(handler, noise())), "it is truncated"}
	archives["damaged.tar.gz"] = Hostile{damage(TarGz(handler)), "it is damaged"}
	archives["not-tar.tar.gz"] = Hostile{gzipped("this is no archive at all, but it is packed; " + strings.Repeat("x", 1024)), "it is damaged, or it is a .gz without a .tar in it"}
	return archives
}

func many(count int) []Entry {
	entries := make([]Entry, 0, count)
	for i := range count {
		entries = append(entries, File(fmt.Sprintf("f%d", i), ""))
	}
	return entries
}

func deep(count int) []Entry {
	entries := make([]Entry, 0, count)
	for i := range count {
		entries = append(entries, File(fmt.Sprintf("%d/%sx", i, strings.Repeat("a/", 60)), ""))
	}
	return entries
}

func noise() Entry {
	content, state := make([]byte, 64<<10), uint32(1)
	for i := range content {
		state = state*1664525 + 1013904223
		content[i] = byte(state >> 24)
	}
	return File("noise", string(content))
}

func cut(archive []byte) []byte { return archive[:len(archive)/2] }

func damage(archive []byte) []byte {
	archive[len(archive)-8] ^= 0xff
	return archive
}

func gzipped(text string) []byte {
	buffer := &bytes.Buffer{}
	to := gzip.NewWriter(buffer)
	_, err := io.WriteString(to, text)
	must(err)
	must(to.Close())
	return buffer.Bytes()
}

// Locked returns a lock file with a version of ms, for a package.json that allows others.
// The version has that integrity. npm gets its address from the registry.
func Locked(version, integrity string) string {
	return fmt.Sprintf(`{"lockfileVersion": 3, "requires": true, "packages": {
  "": {"dependencies": {"ms": "^2.1.0"}},
  "node_modules/ms": {"version": %q, "integrity": %q}
}}
`, version, integrity)
}

// The versions of ms for Locked.
const (
	MS212 = "sha512-sGkPx+VjMtmA6MX27oA4FBFELFCZZ4S4XqeGOXCv68tT+jb3vk/RyaKWP0PTKyWtmLSM0b+adUTEvbs1PEaH2w=="
	MS213 = "sha512-6FlzubTLZG3J2a/NVCAleEhjzq5oxgHyaCU9yYXvcLsvoVaHJq/s5xXI6/XXP6tz7R9xAOtHnSO/tXtF3WRTlA=="
)

// Function returns the files of a function in a language. It uses another file, a link to a
// folder and a package. It answers with the version and 7200000. The language locked is Node
// with a lock file, and the answer is the version and that of the package.
func Function(language, version string) []Entry {
	return map[string][]Entry{
		"nodejs": {
			File("handler.js", "const { answer } = require('./linked/answer.js');\nmodule.exports = { main: () => answer(require('ms')('2h')) };\n"),
			File("lib/answer.js", "exports.answer = (n) => `"+version+" ${n}`;\n"),
			{Name: "linked", Link: "lib"},
			File("package.json", `{"dependencies": {"ms": "2.1.3"}}`),
			File("Dockerfile", "FROM nothing.example.com/that:exists\n"),
		},
		"locked": {
			File("handler.js", "module.exports = { main: () => `"+version+" ${require('ms/package.json').version}` };\n"),
			File("package.json", `{"dependencies": {"ms": "^2.1.0"}}`),
			File("package-lock.json", Locked("2.1.2", MS212)),
		},
		"python": {
			File("handler.py", "import uvicorn\nfrom linked.answer import answer\n\n\ndef main(event, context):\n    return answer(7200000 if uvicorn.__version__ else 0)\n"),
			File("lib/answer.py", "def answer(n):\n    return f'"+version+" {n}'\n"),
			{Name: "linked", Link: "lib"},
			File("requirements.txt", "uvicorn>=0.30\n"),
		},
	}[language]
}

// Functions returns archives with a Function, by name: language, version and format.
func Functions() map[string][]byte {
	archives := map[string][]byte{}
	for _, version := range []string{"1", "2"} {
		for _, language := range []string{"nodejs", "python", "locked"} {
			entries := Function(language, version)
			archives[language+"-"+version+".zip"] = Zip(entries...)
			// Archives of repositories have such a folder.
			below := []Entry{{Name: "function-" + version + "/"}}
			for _, e := range entries {
				e.Name = "function-" + version + "/" + e.Name
				below = append(below, e)
			}
			archives[language+"-"+version+".tar.gz"] = TarGz(below...)
		}
	}
	return archives
}
