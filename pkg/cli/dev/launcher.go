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

package dev

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// home is the folder that the pod adds to the image. It is not the image's own folder
	// of the function, because that has the installed dependencies.
	home   = "/kiln-dev"
	source = home + "/source"

	controlPort  = 7070
	functionPort = runtimes.Port
)

// launcher is the program that runs the wrapper in the pod. It brings what the image lacks.
// It listens on the loopback interface only, which the forwarding of ports reaches.
type launcher struct {
	// flags are the flags of the interpreter before a program.
	flags []string
	// program is the launcher, and boot starts the wrapper.
	program, boot string
}

//go:embed nodejs/launcher.cjs
var nodeLauncher string

//go:embed nodejs/boot.cjs
var nodeBoot string

//go:embed python/launcher.py
var pythonLauncher string

//go:embed python/boot.py
var pythonBoot string

var launchers = map[string]launcher{
	"nodejs": {flags: []string{"-e"}, program: nodeLauncher, boot: nodeBoot},
	"python": {flags: []string{"-P", "-c"}, program: pythonLauncher, boot: pythonBoot},
}

// settings are the argument of a launcher.
type settings struct {
	// TokenHash is the SHA-256 of the token that authorizes requests. Other users of the
	// author's machine reach the port, and all who may get pods read the settings.
	TokenHash string `json:"tokenHash"`
	// Source is the folder for the author's files, and Image that of the image's.
	Source string `json:"source"`
	Image  string `json:"image"`
	// ControlPort takes the requests of kubectl fn, and FunctionPort those of the function.
	ControlPort  int `json:"controlPort"`
	FunctionPort int `json:"functionPort"`
	// Health is the path that the wrapper answers once the function is loaded.
	Health string `json:"health"`
	// Command starts the wrapper.
	Command []string `json:"command"`
}

// command returns the command of the pod for a language that has a launcher.
func command(language runtimes.Runtime, token string) ([]string, error) {
	files, err := language.BuildContext(runtimes.Function{Fetched: true})
	if err != nil {
		return nil, fmt.Errorf("failed to create wrapper: %w", err)
	}
	var layout runtimes.Layout
	if err := json.Unmarshal([]byte(files[runtimes.LayoutName]), &layout); err != nil {
		return nil, fmt.Errorf("failed to read layout: %w", err)
	}
	l := launchers[language.Language]
	interpreter := append([]string{layout.Entrypoint[0]}, l.flags...)
	wrapper := append([]string{}, interpreter...)
	wrapper = append(wrapper, l.boot)
	for _, word := range layout.Entrypoint[1:] {
		if rest, ok := strings.CutPrefix(word, runtimes.FunctionFolder+"/"); ok {
			word = path.Join(source, rest)
		}
		if path.IsAbs(word) {
			wrapper = append(wrapper, word)
		}
	}
	hash := sha256.Sum256([]byte(token))
	text, err := json.Marshal(settings{
		TokenHash: hex.EncodeToString(hash[:]), Source: source, Image: runtimes.FunctionFolder, ControlPort: controlPort, FunctionPort: functionPort,
		Health: runtimes.HealthPath, Command: wrapper,
	})
	if err != nil {
		return nil, fmt.Errorf("failed to encode settings: %w", err)
	}
	return append(interpreter, l.program, string(text)), nil
}

// remote is a launcher in a pod.
type remote struct {
	address, token string
}

// ask sends a request to the launcher, and returns its answer. It returns errAbsent if there
// is no such file.
func (r remote) ask(ctx context.Context, method, name string, body []byte, header http.Header) ([]byte, error) {
	to := url.URL{Scheme: "http", Host: r.address, Path: "/" + name}
	request, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		request.Header = header
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusNotFound:
		return nil, errAbsent
	case response.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf("%s %s: %s: %s", method, name, response.Status, answer)
	}
	return answer, nil
}

var errAbsent = errors.New("there is no such file")

// ping reports whether the launcher listens.
func (r remote) ping(ctx context.Context) bool {
	_, err := r.ask(ctx, http.MethodGet, "", nil, nil)
	return err == nil
}

func (r remote) write(ctx context.Context, name string, data []byte, executable bool) error {
	header := http.Header{}
	if executable {
		header.Set("Executable", "true")
	}
	_, err := r.ask(ctx, http.MethodPut, "source/"+name, data, header)
	return err
}

func (r remote) remove(ctx context.Context, name string) error {
	_, err := r.ask(ctx, http.MethodDelete, "source/"+name, nil, nil)
	return err
}

// builtWith returns a file of the image's source, or "" if the image has none.
func (r remote) builtWith(ctx context.Context, name string) (string, error) {
	text, err := r.ask(ctx, http.MethodGet, "image/"+name, nil, nil)
	if errors.Is(err, errAbsent) {
		return "", nil
	}
	return string(text), err
}

// outcome is what became of the code that was started.
type outcome struct {
	// Started reports whether it gets the requests now, and Serving whether any code does.
	Started bool `json:"started"`
	Serving bool `json:"serving"`
}

func (r remote) start(ctx context.Context) (o outcome, err error) {
	text, err := r.ask(ctx, http.MethodPost, "start", nil, nil)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	return o, err
}
