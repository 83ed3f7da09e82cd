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

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
)

const (
	// Address has the ports of the containers, for the host, containers and pods.
	Address = "10.201.0.2"

	hostAddress = "10.201.0.1"
	subnet      = "10.201.0.0/24"
	hostLink    = "kiln0"
	innerLink   = "kiln1"
	table       = "kiln"
	netnsFile   = runDir + "/netns"
	// forwardingFile names the links that forward only for us.
	forwardingFile = runDir + "/forwarding"
)

// rules let the engine's network out through the host. Clamping keeps connections alive
// if a router silently drops large packets. Other machines on the host's networks cannot
// open connections to the inside.
const rules = `table ip ` + table + `
flush table ip ` + table + `
table ip ` + table + ` {
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ip saddr ` + subnet + ` oifname != "` + hostLink + `" masquerade
	}
	chain forward {
		type filter hook forward priority mangle;
		oifname "` + hostLink + `" ct state new drop
		oifname "` + hostLink + `" tcp flags syn tcp option maxseg size set rt mtu
		iifname "` + hostLink + `" tcp flags syn tcp option maxseg size set rt mtu
	}
}
`

// forwardRules are also needed if the host's firewall forwards nothing.
var forwardRules = [][]string{
	{"FORWARD", "-i", hostLink, "-m", "comment", "--comment", table, "-j", "ACCEPT"},
	{"FORWARD", "-o", hostLink, "-m", "comment", "--comment", table, "-j", "ACCEPT"},
}

// network is a network namespace with a way to the host. dockerd changes only the
// firewall in it.
type network struct {
	log io.Writer
}

// ready reports whether the namespace and its link to the host are complete.
func (n network) ready(ctx context.Context) bool {
	checks := [][]string{
		{"nsenter", "--net=" + netnsFile, "ip", "-4", "-oneline", "address", "show", "dev", innerLink, "up", "to", Address},
		{"ip", "-4", "-oneline", "address", "show", "dev", hostLink, "up", "to", hostAddress},
	}
	for _, check := range checks {
		if out, err := command.New(check...).Output(ctx); err != nil || out == "" {
			return false
		}
	}
	return true
}

// open reports whether the host forwards packets of the network.
func (n network) open(ctx context.Context) bool {
	_, err := command.New("nft", "list", "chain", "ip", table, "forward").Output(ctx)
	return err == nil
}

// ensure makes the missing parts of the network, and returns its largest packet size.
func (n network) ensure(ctx context.Context) (mtu int, err error) {
	uplink, err := n.uplink(ctx)
	if err != nil {
		return 0, err
	}
	mtu, err = linkMTU(uplink)
	if err != nil {
		return 0, err
	}
	if !n.ready(ctx) {
		if err := n.create(ctx, mtu); err != nil {
			return 0, fmt.Errorf("failed to create network: %w", err)
		}
	}
	if err := n.openFirewall(ctx); err != nil {
		return 0, err
	}
	// The uplink may have changed.
	return mtu, n.forward(uplink)
}

func (n network) create(ctx context.Context, mtu int) error {
	if err := n.remove(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(netnsFile, nil, 0o600); err != nil {
		return err
	}
	size := strconv.Itoa(mtu)
	inside := []string{"nsenter", "--net=" + netnsFile, "ip"}
	steps := [][]string{
		// The namespace has its own file, because ip netns would leave a mount behind.
		{"unshare", "--net=" + netnsFile, "true"},
		{"ip", "link", "add", hostLink, "mtu", size, "type", "veth", "peer", "name", innerLink, "mtu", size, "netns", netnsFile},
		{"ip", "address", "add", hostAddress + "/24", "dev", hostLink},
		{"ip", "link", "set", hostLink, "up"},
		append(inside, "link", "set", "lo", "up"),
		append(inside, "address", "add", Address+"/24", "dev", innerLink),
		append(inside, "link", "set", innerLink, "up"),
		append(inside, "route", "add", "default", "via", hostAddress),
	}
	for _, step := range steps {
		if err := command.New(step...).Run(ctx, n.log); err != nil {
			return err
		}
	}
	return os.WriteFile(forwarding(hostLink), []byte("1"), 0o644)
}

// openFirewall allows the network's packets, even if the host's firewall forwards
// nothing.
func (n network) openFirewall(ctx context.Context) error {
	if err := command.New("nft", "-f", "-").Reading(strings.NewReader(rules)).Run(ctx, n.log); err != nil {
		return fmt.Errorf("failed to set firewall rules: %w", err)
	}
	policy, err := command.New("iptables", "-w", "-S", "FORWARD").Output(ctx)
	if err != nil || !strings.HasPrefix(policy, "-P FORWARD DROP") {
		return nil // No such firewall.
	}
	for _, rule := range forwardRules {
		if _, err := command.New(append([]string{"iptables", "-w", "-C"}, rule...)...).Output(ctx); err == nil {
			continue
		}
		if err := command.New(append([]string{"iptables", "-w", "-I"}, rule...)...).Run(ctx, n.log); err != nil {
			return fmt.Errorf("failed to open firewall: %w", err)
		}
	}
	return nil
}

// remove removes the network, even if it is incomplete.
func (n network) remove(ctx context.Context) error {
	n.closeFirewall(ctx)
	return errors.Join(
		unmountBelow(netnsFile),
		remove(netnsFile),
		n.removeLink(ctx),
		n.removeTable(ctx),
		n.unforward(),
	)
}

func (n network) removeLink(ctx context.Context) error {
	link := "/sys/class/net/" + hostLink
	if _, err := os.Stat(link); err != nil {
		return nil
	}
	err := command.New("ip", "link", "delete", hostLink).Run(ctx, n.log)
	if _, gone := os.Stat(link); err != nil && gone == nil {
		return fmt.Errorf("failed to remove link: %w", err)
	}
	return nil // It may have gone meanwhile, together with the namespace.
}

func (n network) removeTable(ctx context.Context) error {
	if _, err := command.New("nft", "list", "table", "ip", table).Output(ctx); err != nil {
		return nil // It is not there.
	}
	if err := command.New("nft", "delete", "table", "ip", table).Run(ctx, n.log); err != nil {
		return fmt.Errorf("failed to remove firewall rules: %w", err)
	}
	return nil
}

// closeFirewall removes all copies of the rules of openFirewall.
func (n network) closeFirewall(ctx context.Context) {
	for _, rule := range forwardRules {
		for {
			if _, err := command.New(append([]string{"iptables", "-w", "-D"}, rule...)...).Output(ctx); err != nil {
				break
			}
		}
	}
}

// contains reports whether a process is in the network.
func (n network) contains(pid int) bool {
	var ours, its syscall.Stat_t
	if syscall.Stat(netnsFile, &ours) != nil || syscall.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &its) != nil {
		return false
	}
	return ours.Dev == its.Dev && ours.Ino == its.Ino
}

// uplink returns the link of the default route.
func (n network) uplink(ctx context.Context) (string, error) {
	out, err := command.New("ip", "-4", "-json", "route", "show", "default").Output(ctx)
	if err != nil {
		return "", err
	}
	return defaultLink([]byte(out))
}

// defaultLink returns the link of the first route of ip's list.
func defaultLink(routes []byte) (string, error) {
	var list []struct {
		Dev string `json:"dev"`
	}
	if err := json.Unmarshal(routes, &list); err != nil {
		return "", fmt.Errorf("failed to decode routes: %w", err)
	}
	if len(list) == 0 || list[0].Dev == "" {
		return "", errors.New("this machine has no route to the outside (IPv4 default route)")
	}
	return list[0].Dev, nil
}

func linkMTU(link string) (int, error) {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return 0, fmt.Errorf("failed to look up link %s: %w", link, err)
	}
	return i.MTU, nil
}

// forwarding returns the kernel's setting for the forwarding of a link's packets.
func forwarding(link string) string {
	return filepath.Join("/proc/sys/net/ipv4/conf", link, "forwarding")
}

// forward makes the host forward answers from the uplink. It does not change the setting
// for all links.
func (n network) forward(uplink string) error {
	value, err := os.ReadFile(forwarding(uplink))
	if err != nil {
		return fmt.Errorf("failed to read forwarding: %w", err)
	}
	if strings.TrimSpace(string(value)) == "1" {
		return nil
	}
	f, err := os.OpenFile(forwardingFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("failed to note forwarding: %w", err)
	}
	if _, err := fmt.Fprintln(f, uplink); err != nil {
		return errors.Join(fmt.Errorf("failed to note forwarding: %w", err), f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("failed to note forwarding: %w", err)
	}
	if err := os.WriteFile(forwarding(uplink), []byte("1"), 0o644); err != nil {
		return fmt.Errorf("failed to forward: %w", err)
	}
	return nil
}

// unforward undoes forward, unless somebody has made the host a router since.
func (n network) unforward() error {
	links, err := os.ReadFile(forwardingFile)
	if err != nil {
		return nil // Nothing was changed.
	}
	all, err := os.ReadFile(forwarding("all"))
	if err == nil && strings.TrimSpace(string(all)) == "1" {
		return remove(forwardingFile)
	}
	for link := range strings.FieldsSeq(string(links)) {
		if err := os.WriteFile(forwarding(link), []byte("0"), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("failed to restore forwarding: %w", err)
		}
	}
	return remove(forwardingFile)
}
