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

package sources

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxName bounds the name of a file, and maxPart each part of it between slashes. File
	// systems allow no longer parts.
	maxName = 1024
	maxPart = 255

	maxDepth = 64

	// maxTarget is the longest target of a link that all file systems allow. XFS allows the
	// least.
	maxTarget = 1024

	// whiteout is the prefix of files in image layers that delete other files.
	whiteout = ".wh."
)

type kind int

const (
	folder kind = iota + 1
	implicit
	file
	link
)

// Tree writes the files of a source below a folder, and nothing anywhere else. After a
// RefusedError it must not be used.
type Tree struct {
	root   *os.Root
	limits Limits
	// budget is the maximum number of bytes, and why names the limit behind it.
	budget int64
	why    func() error

	// in is the open folder of the last file. Opening deep paths for each file would be
	// slow.
	in     *os.Root
	inName string

	kinds map[string]kind
	sizes map[string]int64
	size  int64
}

// NewTree returns a Tree that writes below the empty folder.
func NewTree(root *os.Root, limits Limits) *Tree {
	t := &Tree{root: root, in: root, inName: ".", limits: limits, budget: limits.Size, kinds: map[string]kind{}, sizes: map[string]int64{}}
	t.why = func() error {
		return Refuse("its files are more than %s together (%s in config-build)", InWords(limits.Size), MaxUnpackedSizeKey)
	}
	return t
}

// Close closes open folders. It keeps the files.
func (t *Tree) Close() {
	if t.in != t.root {
		t.in.Close()
	}
	t.in, t.inName = t.root, "."
}

func (t *Tree) folderOf(name string) (*os.Root, string, error) {
	dir, base := path.Split(name)
	if dir = path.Clean(dir); dir == t.inName {
		return t.in, base, nil
	}
	from, below := t.root, dir
	if path.Dir(dir) == t.inName {
		from, below = t.in, path.Base(dir)
	}
	if dir == "." {
		t.Close()
		return t.root, base, nil
	}
	in, err := from.OpenRoot(below)
	if err != nil {
		return nil, "", &WriteError{err}
	}
	t.Close()
	t.in, t.inName = in, dir
	return in, base, nil
}

// ratioFloor is a size that every archive may unpack to. Small repetitive files are
// harmless.
const ratioFloor = 10 << 20

func (t *Tree) packedIn(size int64) {
	most := max(size*t.limits.Ratio, ratioFloor)
	if size > 0 && most/size < t.limits.Ratio || most >= t.budget {
		return
	}
	t.budget = most
	t.why = func() error {
		return Refuse("it unpacks to more than %d times its %s (%s in config-build), as a bomb does", t.limits.Ratio, InWords(size), MaxUnpackedRatioKey)
	}
}

func clean(name string) (string, error) {
	switch {
	case len(name) > maxName:
		return "", Refuse("a file in it has a name of %d characters, more than the limit of %d", len(name), maxName)
	case name == "", !utf8.ValidString(name), strings.ContainsAny(name, "\x00\\"):
		return "", Refuse("file %q in it has no name that can be used: write it in UTF-8, with / between folders", name)
	case strings.HasPrefix(name, "/"):
		return "", Refuse("file %q in it has an absolute path", name)
	}
	if strings.Count(name, "/") > maxDepth {
		return "", Refuse("file %q in it is nested in more than %d folders", name, maxDepth)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "", Refuse("file %q in it has .. in its path", name)
		case len(part) > maxPart:
			return "", Refuse("a file in it has a name of %d characters, more than the limit of %d", len(part), maxPart)
		case strings.HasPrefix(part, whiteout):
			return "", Refuse("file %q in it has a name with %s, which deletes files of an image", name, whiteout)
		}
	}
	return path.Clean(name), nil
}

func (t *Tree) take(name string, as kind) error {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		above := name[:i]
		switch t.kinds[above] {
		case folder, implicit:
		case 0:
			if err := t.add(above, implicit); err != nil {
				return err
			}
		default:
			return Refuse("it has %q both as a folder and as a file or link", above)
		}
	}
	switch was := t.kinds[name]; {
	case was == implicit && as == folder:
		t.kinds[name] = folder
		return nil
	case was != 0:
		return Refuse("it has two files named %q", name)
	}
	return t.add(name, as)
}

func (t *Tree) add(name string, as kind) error {
	if int64(len(t.kinds)) >= t.limits.Files {
		return tooMany(t.limits)
	}
	t.kinds[name] = as
	if as != folder && as != implicit {
		return nil
	}
	in, base, err := t.folderOf(name)
	if err != nil {
		return err
	}
	return t.failed(in.Mkdir(base, 0o755))
}

func tooMany(limits Limits) error {
	return Refuse("it has more than %d files and folders (%s in config-build)", limits.Files, MaxUnpackedFilesKey)
}

func (t *Tree) failed(err error) error {
	if err == nil {
		return nil
	}
	return &WriteError{err}
}

// WriteError is a local error, not one of the source or its server.
type WriteError struct{ error }

func (e *WriteError) Error() string { return "failed to write source: " + e.error.Error() }
func (e *WriteError) Unwrap() error { return e.error }

// Folder makes a folder.
func (t *Tree) Folder(name string) error {
	name, err := clean(name)
	if err != nil || name == "." {
		return err
	}
	return t.take(name, folder)
}

// File writes a file. It returns the errors of its reader unchanged.
func (t *Tree) File(name string, executable bool, from io.Reader) error {
	name, err := t.takeFile(name)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	in, base, err := t.folderOf(name)
	if err != nil {
		return err
	}
	to, err := in.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return t.failed(err)
	}
	size, err := t.copy(to, from)
	t.sizes[name] = size
	return errors.Join(err, t.failed(to.Close()))
}

func (t *Tree) takeFile(name string) (string, error) {
	name, err := clean(name)
	if err != nil {
		return "", err
	}
	if name == "." {
		return "", Refuse("a file in it has no name")
	}
	return name, t.take(name, file)
}

func (t *Tree) copy(to io.Writer, from io.Reader) (int64, error) {
	left := t.budget - t.size
	size, err := io.Copy(Writer{to}, io.LimitReader(from, left+1))
	t.size += size
	if size > left {
		return size, t.why()
	}
	return size, err
}

// Writer marks its errors as WriteErrors, so callers can distinguish them from read errors.
type Writer struct{ io.Writer }

// Write implements io.Writer.
func (w Writer) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		return n, &WriteError{err}
	}
	return n, nil
}

// ReadTarget reads the target of a symbolic link, up to a length that Symlink rejects.
func ReadTarget(from io.Reader) (string, error) {
	target, err := io.ReadAll(io.LimitReader(from, maxTarget+1))
	return string(target), err
}

// Symlink makes a symbolic link. CheckLinks checks its target at the end.
func (t *Tree) Symlink(name, target string) error {
	name, err := clean(name)
	if err != nil {
		return err
	}
	switch {
	case name == ".":
		return Refuse("a link in it has no name")
	case target == "", strings.ContainsRune(target, 0):
		return Refuse("link %q in it has no valid target", name)
	case len(target) > maxTarget:
		return Refuse("link %q in it leads to a name of more than %d characters", name, maxTarget)
	}
	if err := t.take(name, link); err != nil {
		return err
	}
	in, base, err := t.folderOf(name)
	if err != nil {
		return err
	}
	return t.failed(in.Symlink(target, base))
}

// Link gives a written file a second name. Its size counts again, as it does in the image.
func (t *Tree) Link(name, target string) error {
	target, err := clean(target)
	if err != nil {
		return err
	}
	if t.kinds[target] != file {
		return Refuse("link %q in it leads to %q, which is not a file in it", name, target)
	}
	if name, err = t.takeFile(name); err != nil {
		return err
	}
	t.sizes[name] = t.sizes[target]
	if t.size += t.sizes[target]; t.size > t.budget {
		return t.why()
	}
	return t.failed(t.root.Link(target, name))
}

// CheckLinks rejects symbolic links below the folder that lead out of it. A link may only
// go up at its start, so a chain of links cannot lead out either.
func CheckLinks(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() != fs.ModeSymlink {
			return err
		}
		target, err := root.Readlink(name)
		if err != nil {
			return &WriteError{err}
		}
		return CheckLink(name, target)
	})
}

// CheckLink rejects a symbolic link that leads out of the folder to which its name is
// relative.
func CheckLink(name, target string) error {
	if !isInside(name, target) {
		return Refuse("link %q in it leads out of it, to %q", name, target)
	}
	return nil
}

func isInside(name, target string) bool {
	if strings.HasPrefix(target, "/") {
		return false
	}
	depth, down := strings.Count(name, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == ".." && (down || depth == 0):
			return false
		case part == "..":
			depth--
		case part != "" && part != ".":
			down = true
		}
	}
	return true
}

// Top returns the folder with any of the required files: the root, or the only folder in
// it, as in archives of repositories.
func Top(root *os.Root, required ...string) (string, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return "", &WriteError{err}
	}
	if len(entries) == 1 && entries[0].IsDir() && hasAny(root, entries[0].Name(), required) {
		return entries[0].Name(), nil
	}
	return ".", Has(root, required...)
}

func hasAny(root *os.Root, folder string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return isFile(root, path.Join(folder, name)) })
}

func isFile(root *os.Root, name string) bool {
	info, err := root.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// Has rejects a source without any of the required files at its root, and lists the root.
func Has(root *os.Root, required ...string) error {
	if hasAny(root, ".", required) {
		return nil
	}
	wanted := strings.Join(required, " or ")
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return &WriteError{err}
	}
	const most = 10
	var names []string
	for _, entry := range entries[:min(most, len(entries))] {
		names = append(names, strconv.Quote(entry.Name()))
	}
	if len(entries) > most {
		names = append(names, "…")
	}
	if len(names) == 0 {
		return Refuse("it is empty; it must have %s", wanted)
	}
	return Refuse("it must have the file %s at its top, which has: %s", wanted, strings.Join(names, ", "))
}
