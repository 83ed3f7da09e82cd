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

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func TestPin(t *testing.T) {
	base := &baseImage{name: "node:24", pinned: "node:24@sha256:1"}
	for before, after := range map[string]string{
		"FROM node:24\nRUN x\n": "FROM node:24@sha256:1\nRUN x\n",
		"FROM node:24":          "FROM node:24@sha256:1",
		"FROM node:24\r\nRUN x": "FROM node:24@sha256:1\r\nRUN x",
		"# x\n\tfrom  --platform=linux/arm64  node:24 AS a\nFROM a\nFROM node:24": "# x\n\tfrom  --platform=linux/arm64  node:24@sha256:1 AS a\nFROM a\nFROM node:24@sha256:1",
		"FROM node:24-slim\nFROM my/node:24\n":                                    "FROM node:24-slim\nFROM my/node:24\n",
		"FROM node:24@sha256:1\n":                                                 "FROM node:24@sha256:1\n",
		"FROM golang\nRUN echo FROM node:24\n":                                    "FROM golang\nRUN echo FROM node:24\n",
	} {
		if got := string(pin([]byte(before), base)); got != after {
			t.Errorf("pin(%q) = %q, want %q", before, got, after)
		}
	}
}

// TestCopyLayer checks that equal files make equal layers at any time.
func TestCopyLayer(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	packaged := time.Date(1985, 10, 26, 8, 15, 0, 0, time.UTC)
	copyOf := func(written time.Time) []byte {
		before, after := &bytes.Buffer{}, &bytes.Buffer{}
		archive := tar.NewWriter(before)
		for _, header := range []*tar.Header{
			{Name: "function/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: written},
			{Name: "function/new", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 1, ModTime: written.Add(time.Nanosecond), Uid: 7, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01"}},
			{Name: "function/old", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1, ModTime: packaged},
			{Name: "function/.wh.gone", Typeflag: tar.TypeReg, ModTime: written},
		} {
			header.Format, header.AccessTime, header.ChangeTime = tar.FormatPAX, written, written
			if err := archive.WriteHeader(header); err != nil {
				t.Fatal(err)
			}
			if header.Size > 0 {
				if _, err := archive.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		if err := copyLayer(after, before, began); err != nil {
			t.Fatal(err)
		}
		return after.Bytes()
	}
	first := copyOf(began.Add(time.Second))
	if !bytes.Equal(first, copyOf(began.Add(time.Hour))) {
		t.Error("the layer depends on the time of the build")
	}

	var times []string
	archive := tar.NewReader(bytes.NewReader(first))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, header.Name+" "+header.ModTime.UTC().Format(time.DateOnly))
		if header.Name == "function/new" && (header.Uid != 7 || header.Mode != 0o4755 || header.PAXRecords["SCHILY.xattr.security.capability"] != "\x01") {
			t.Errorf("more than the time has changed: %+v", header)
		}
	}
	want := []string{"function/ 1970-01-01", "function/new 1970-01-01", "function/old 1985-10-26", "function/.wh.gone 1970-01-01"}
	if !slices.Equal(times, want) {
		t.Errorf("times are %q, want %q", times, want)
	}
}

// TestUndated checks that compiled Python matches a source that has lost its time.
func TestUndated(t *testing.T) {
	since := time.Unix(0x10203040, 0)
	for name, tc := range map[string]struct{ before, after string }{
		"of this build":      {"magc\x00\x00\x00\x00\x40\x30\x20\x10sizecode", "magc\x00\x00\x00\x00\x00\x00\x00\x00sizecode"},
		"of a package":       {"magc\x00\x00\x00\x00\x3f\x30\x20\x10sizecode", ""},
		"by a hash":          {"magc\x01\x00\x00\x00\xff\xff\xff\xffhashcode", ""},
		"no compiled Python": {"x", ""},
		"nothing":            {"", ""},
	} {
		reader, err := undated(strings.NewReader(tc.before), since)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(reader)
		if want := cmp.Or(tc.after, tc.before); err != nil || string(got) != want {
			t.Errorf("%s: undated() = %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestCheck checks that the error for a heredoc names its line.
func TestCheck(t *testing.T) {
	for dockerfile, want := range map[string]string{
		"FROM a\nRUN x <<EOF\nmore\nEOF\n":                    "line 2 of the Dockerfile has a heredoc, <<EOF",
		"# x\nFROM a\nCOPY --chmod=755 <<-'E F' /x\nE F\n":    "line 3 of the Dockerfile has a heredoc, <<E F",
		"FROM a\nRUN test 1 -lt 2 && cat < x && echo '<<x'\n": "",
		"FROM a\nRUNN x\n":                                    "",
		"":                                                    "failed to parse Dockerfile: ",
	} {
		file := filepath.Join(t.TempDir(), "Dockerfile")
		if err := os.WriteFile(file, []byte(dockerfile), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := check(file); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("check(%q) = %v, want %q", dockerfile, err, want)
		}
	}
}

// TestKeepAll checks that all layers of an image without a known base image are kept,
// and that those from a registry do not change.
func TestKeepAll(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/base:1")
	if err != nil {
		t.Fatal(err)
	}
	base, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, base); err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	written := &bytes.Buffer{}
	archive := tar.NewWriter(written)
	if err := errors.Join(archive.WriteHeader(&tar.Header{Name: "x", ModTime: time.Unix(2, 0)}), archive.Close()); err != nil {
		t.Fatal(err)
	}
	made := static.NewLayer(written.Bytes(), types.DockerUncompressedLayer)
	image, err := mutate.AppendLayers(pulled, made)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.Config(image, v1.Config{User: "7"}); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := keep(image, nil, folder, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, layer := range manifest.Layers {
		content, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%04d.tar.gz", i)))
		if err != nil {
			t.Fatal(err)
		}
		digest, _, err := v1.SHA256(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if same := digest == layer.Digest; same != (i < 2) {
			t.Errorf("layer %d is as in the registry: %t", i, same)
		}
	}
	if config, err := os.ReadFile(filepath.Join(folder, "config.json")); err != nil || !strings.Contains(string(config), `"User":"7"`) {
		t.Errorf("config.json has %s, %v", config, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "base.json")); err == nil {
		t.Error("there is a base.json")
	}
}

// TestPulled checks that errors of the registry have the prefix that makes builds retry.
func TestPulled(t *testing.T) {
	lost := errors.New("connection reset by peer")
	_, err := io.ReadAll(pulled{io.MultiReader(strings.NewReader("half"), iotest.ErrReader(lost))})
	if want := "failed to pull base image: connection reset by peer"; err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %q", err, want)
	}
	if got, err := io.ReadAll(pulled{strings.NewReader("whole")}); string(got) != "whole" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}
