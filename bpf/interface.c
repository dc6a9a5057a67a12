// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// At the egress of an interface: sets the mark (DSCP) of packets that have a class of Weir's. Either application.c has set the class as
// the packet's priority, or a port rule gives the class.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "classes.h"

// Of the two licences, the kernel accepts only this one.
char LICENSE[] SEC("license") = "GPL";

// Set before loading: the priority of the first class, whose mark is 1, and the number of classes.
volatile const __u32 FIRST = 0;
volatile const __u32 CLASSES = 0;
// Whether there are port rules.
volatile const __u32 PORTS = 0;

// The priority that the rule of a port (network byte order) gives; 0 without a rule.
static __u32 lookup_priority(struct __sk_buff *skb, __u16 port)
{
	struct class_key key = { .application = (__u64)bpf_ntohs(port) << 48 | 1, .interface = skb->ifindex };
	__u32 *class = bpf_map_lookup_elem(&classes, &key);

	return class ? *class : 0;
}

// The priority by the source port, or else the destination port, of a packet that this host sends; 0 without a rule. Fragments get no
// priority, since only the first one contains the ports.
static __u32 priority_by_ports(struct __sk_buff *skb)
{
	__u32 offset = ETH_HLEN, priority;
	__u16 ports[2];
	__u8 protocol;

	if (skb->ingress_ifindex)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)) || ip.frag_off & bpf_htons(0x3fff))
			return 0;
		protocol = ip.protocol;
		offset += ip.ihl * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, offset + 6, &protocol, sizeof(protocol)))
			return 0;
		offset += sizeof(struct ipv6hdr);
	} else {
		return 0;
	}
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return 0;
	if (bpf_skb_load_bytes(skb, offset, ports, sizeof(ports)))
		return 0;
	priority = lookup_priority(skb, ports[0]);
	return priority ? priority : lookup_priority(skb, ports[1]);
}

SEC("classifier")
int mark(struct __sk_buff *skb)
{
	__u32 class = skb->priority - FIRST;
	__u16 old, new;

	// A priority below FIRST wraps to a large number. The class of a cgroup has precedence over that of a port.
	if (PORTS && class >= CLASSES) {
		__u32 priority = priority_by_ports(skb);

		if (priority) {
			skb->priority = priority;
			class = priority - FIRST;
		}
	}
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
