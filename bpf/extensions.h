// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Skips the extension headers of an IPv6 packet. Include it after linux/in.h, linux/ipv6.h, stdbool.h and bpf_helpers.h.

// A packet with more extension headers has no upper protocol.
#define MAX_EXTENSIONS 6

// A header of a packet, and where it begins.
struct packet_header {
	__u32 offset;
	__u8 protocol;
	// The packet has no such header: it belongs to the first fragment.
	bool is_in_first_fragment;
};

// Moves from an extension header to the first other header. False if the packet has too many, or is too short.
static bool skip_extensions(struct __sk_buff *skb, struct packet_header *header)
{
	struct {
		__u8 next;
		__u8 length;
		__be16 fragment;
	} extension;

	header->is_in_first_fragment = false;
	for (int count = 0; count <= MAX_EXTENSIONS; count++) {
		bool is_fragment = header->protocol == IPPROTO_FRAGMENT;

		if (!is_fragment && header->protocol != IPPROTO_HOPOPTS && header->protocol != IPPROTO_ROUTING &&
		    header->protocol != IPPROTO_DSTOPTS)
			return true;
		if (count == MAX_EXTENSIONS || bpf_skb_load_bytes(skb, header->offset, &extension, sizeof(extension)))
			return false;
		header->protocol = extension.next;
		header->offset += is_fragment ? 8 : (extension.length + 1) * 8;
		if (is_fragment && extension.fragment & bpf_htons(0xfff8)) {
			header->is_in_first_fragment = true;
			return true;
		}
	}
	return false;
}
