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
	"fmt"
	"net/netip"
	"strings"
)

// FollowAllowedAddressesKey is the key of config-build with the internal addresses that
// the controller may connect to.
const FollowAllowedAddressesKey = "follow-allowed-addresses"

var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// internal has special addresses that netip does not classify.
var internal = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by carriers and clouds
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's host
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),          // an IPv4 address
	netip.MustParsePrefix("64:ff9b:1::/48"), // an IPv4 address of a local network
	netip.MustParsePrefix("2001::/32"),      // Teredo, an IPv4 address
	netip.MustParsePrefix("2002::/16"),      // 6to4, an IPv4 address
	netip.MustParsePrefix("fec0::/10"),
}

// Addresses is a list of CIDRs, separated by commas.
type Addresses string

// ParseAddresses parses CIDRs that are separated by commas.
func ParseAddresses(s string) (Addresses, error) {
	var all []string
	for cidr := range strings.SplitSeq(s, ",") {
		if cidr = strings.TrimSpace(cidr); cidr == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return "", fmt.Errorf("%q is not a CIDR such as 10.0.0.0/8", cidr)
		}
		all = append(all, prefix.Masked().String())
	}
	return Addresses(strings.Join(all, ",")), nil
}

func (a Addresses) has(address netip.Addr) bool {
	for cidr := range strings.SplitSeq(string(a), ",") {
		if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Contains(address) {
			return true
		}
	}
	return false
}

// Check returns an error for an internal address that is not in the list.
func (a Addresses) Check(address netip.Addr) error {
	address = address.Unmap().WithZone("")
	if nat64.Contains(address) {
		bytes := address.As16()
		address = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if !isInternal(address) || a.has(address) {
		return nil
	}
	return Refuse("%s is an internal address: an administrator can allow it with %s in the ConfigMap config-build",
		address, FollowAllowedAddressesKey)
}

func isInternal(address netip.Addr) bool {
	if !address.IsGlobalUnicast() || address.IsPrivate() {
		return true
	}
	for _, prefix := range internal {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}
