// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// At an interface, where packets leave it: those of a class of Weir's get the mark (DSCP) of the class. They come with the
// class as their priority, which application.c gave them.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// The kernel is told the half of the licence that it knows.
char LICENSE[] SEC("license") = "GPL";

// Set before loading: the first class, and how many there are. The first has the mark 1.
volatile const __u32 FIRST = 0;
volatile const __u32 CLASSES = 0;

SEC("classifier")
int mark(struct __sk_buff *skb)
{
	__u32 class = skb->priority - FIRST;
	__u16 old, new;

	// Less than the first is more than all.
	if (class >= CLASSES)
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &old, sizeof(old)))
		return TC_ACT_UNSPEC;
	old = bpf_ntohs(old);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		// Version and length, DSCP, ECN.
		new = (old & 0xff03) | (class + 1) << 2;
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		// Version, DSCP, ECN, and the flow label's first bits.
		new = (old & 0xf03f) | (class + 1) << 6;
	else
		return TC_ACT_UNSPEC;
	if (new == old)
		return TC_ACT_UNSPEC;
	old = bpf_htons(old);
	new = bpf_htons(new);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		bpf_l3_csum_replace(skb, ETH_HLEN + 10, old, new, sizeof(new));
	bpf_skb_store_bytes(skb, ETH_HLEN, &new, sizeof(new), 0);
	return TC_ACT_UNSPEC;
}
