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

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// starters are functions to begin with: the files of each, by language.
var starters = map[string]map[string]string{
	"nodejs": {
		"handler.js":   "module.exports = {\n  main: async function (event, context) {\n    return `hello ${event.data.name ?? 'world'}`;\n  },\n};\n",
		"package.json": "{\n  \"dependencies\": {}\n}\n",
	},
	"python": {
		"handler.py":       "def main(event, context):\n    return f\"hello {event['data'].get('name', 'world')}\"\n",
		"requirements.txt": "",
	},
	// They are those of examples/dockerfile.
	runtimes.DockerfileLanguage: {
		"Dockerfile": `# Whatever listens on $PORT is a function, of any language, upon any image.
FROM debian:bookworm-slim
WORKDIR /srv
COPY server.pl ./
RUN perl -c server.pl
# Functions run as a user by number, and not as root.
USER 1000:1000
ENTRYPOINT ["perl", "server.pl"]
`,
		"server.pl": `use strict;
use warnings;
use IO::Socket::INET;
use POSIX 'WNOHANG';

my $listener = IO::Socket::INET->new(LocalPort => $ENV{PORT} || 8080, Listen => 128, ReuseAddr => 1)
    or die "failed to listen: $@\n";

# Who has come is answered, still, when the pod is to end.
my $ending = 0;
$SIG{TERM} = sub { $ending = 1; close $listener };

until ($ending) {
    my $client = $listener->accept or next;
    my $child = fork() // die "failed to fork: $!\n";
    unless ($child) {
        answer($client);
        exit 0;
    }
    close $client;
    1 while waitpid(-1, WNOHANG) > 0;
}
1 until wait() < 0;

sub answer {
    my ($client) = @_;
    my ($length, $name) = (0, '');
    while (defined(my $line = <$client>)) {
        last if $line =~ /^\r?$/;
        $length = $1 if $line =~ /^content-length:\s*(\d+)/i;
    }
    read($client, $name, $length) if $length;
    my $text = 'hello ' . ($name || 'world');
    print $client "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ", length $text,
        "\r\nConnection: close\r\n\r\n", $text;
}
`,
	},
}

func (c *cli) initCommand() *cobra.Command {
	var runtime string
	command := &cobra.Command{
		Use:     "init DIR",
		Short:   "Write a function to begin with into a folder",
		Long:    "Write a function to begin with into a folder. What is there already is left alone.",
		Example: "  kubectl fn init greeter --runtime=nodejs24",
	}
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return try(fmt.Errorf("name one folder; there are %d", len(args)), "kubectl fn init greeter --runtime=nodejs24")
		}
		return nil
	}
	command.Flags().StringVar(&runtime, "runtime", "nodejs24", "The runtime.")
	must(command.RegisterFlagCompletionFunc("runtime", c.completeRuntimes))
	command.RunE = func(_ *cobra.Command, args []string) error {
		language, err := languageOf(runtime)
		if err != nil {
			return err
		}
		dir := args[0]
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("failed to make folder: %w", err)
		}
		var written []string
		for _, name := range slices.Sorted(maps.Keys(starters[language.Language])) {
			path := filepath.Join(dir, name)
			if err := writeNew(path, starters[language.Language][name]); err != nil {
				return err
			}
			written = append(written, path)
		}
		fmt.Fprintf(c.Out, "wrote %s\n", strings.Join(written, " and "))
		if language.IsOwnDockerfile() {
			fmt.Fprintf(c.ErrOut, "Next: cd %s, and kubectl fn deploy NAME --runtime=%s --dir=.\n", dir, runtime)
			return nil
		}
		fmt.Fprintf(c.ErrOut, "Next: cd %s, kubectl fn run, and kubectl fn deploy NAME --runtime=%s\n", dir, runtime)
		return nil
	}
	return command
}

// writeNew writes a file that must not be there yet.
func writeNew(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return try(fmt.Errorf("%s is there already", path), "another folder")
	case err != nil:
		return fmt.Errorf("failed to write %s: %w", path, err)
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("failed to write %s: %w", path, err)
	}
	return nil
}
