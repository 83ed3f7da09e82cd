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
	"net/netip"
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for address, allowed := range map[string]bool{
		"140.82.121.4":         true,
		"2606:50c0:8000::153":  true,
		"::ffff:140.82.121.4":  true,
		"64:ff9b::8c52:7904":   true,
		"127.0.0.1":            false,
		"::1":                  false,
		"::ffff:127.0.0.1":     false,
		"::127.0.0.1":          false,
		"64:ff9b::7f00:1":      false,
		"64:ff9b::a9fe:a9fe":   false,
		"64:ff9b:1::a9fe:a9fe": false,
		"2002:a9fe:a9fe::1":    false,
		"0.0.0.0":              false,
		"0.1.2.3":              false,
		"::":                   false,
		"169.254.169.254":      false,
		"::ffff:a9fe:a9fe":     false,
		"fe80::1%eth0":         false,
		"fd00:ec2::254":        false,
		"10.96.0.1":            false,
		"172.16.0.1":           false,
		"192.168.1.1":          false,
		"192.0.0.192":          false,
		"100.100.100.200":      false,
		"168.63.129.16":        false,
		"224.0.0.1":            false,
		"ff02::1":              false,
		"255.255.255.255":      false,
		"10.7.0.1":             true,
		"::ffff:10.7.0.1":      true,
		"10.8.0.1":             false,
		"fd12::1":              true,
	} {
		err := Addresses("10.7.0.0/16,fd12::/64").Check(netip.MustParseAddr(address))
		if allowed != (err == nil) {
			t.Errorf("Check(%s) = %v, want allowed: %t", address, err, allowed)
		}
		if err != nil && (ExitCode(err) != ExitRefused || !strings.Contains(err.Error(), "follow-allowed-addresses in the ConfigMap config-build")) {
			t.Errorf("Check(%s) = %v, want a refusal that names the key", address, err)
		}
	}
}

func TestParseAddresses(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Addresses
		err  string
	}{
		{"", "", ""},
		{" , ", "", ""},
		{" 10.1.2.3/16, fd00::1/8 ", "10.1.0.0/16,fd00::/8", ""},
		{"10.0.0.1", "", `"10.0.0.1" is not a CIDR`},
		{"10.0.0.0/8,git.local", "", `"git.local" is not a CIDR`},
	} {
		got, err := ParseAddresses(tc.text)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("ParseAddresses(%q) = %q, %v, want %q, %q", tc.text, got, err, tc.want, tc.err)
		}
	}
}
