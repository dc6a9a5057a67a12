// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// At the egress of an interface: sets the mark (DSCP) and the priority of packets that have a class of Weir's. The class is that of the
// socket's innermost cgroup with a class. The socket is still known behind bridges and tunnels. Otherwise the packet's priority is its
// class, as of sockets that programs handed over, or a port rule gives the class.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <stdbool.h>
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

// The number of cgroups, from the root, that can have a class. Deeper ones have the class of the cgroup that contains them.
#define MAX_DEPTH 32

static bool is_class(__u32 priority)
{
	// A priority below FIRST wraps to a large number.
	return priority - FIRST < CLASSES;
}

// The priority of the innermost application whose cgroup contains the packet's socket; 0 without one. Also for sockets of other network
// namespaces.
static __u32 priority_by_cgroup(struct __sk_buff *skb)
{
	__u32 priority = 0;

	for (int depth = 0; depth < MAX_DEPTH; depth++) {
		__u64 cgroup = bpf_skb_ancestor_cgroup_id(skb, depth);
		__u32 *found;

		if (!cgroup)
			break;
		found = bpf_map_lookup_elem(&priorities, &cgroup);
		if (found)
			priority = *found;
	}
	return priority;
}

// The priority that the rule of a port (network byte order) gives; 0 without a rule.
static __u32 priority_of_port(__u16 port)
{
	__u64 application = (__u64)bpf_ntohs(port) << 48 | 1;
	__u32 *found = bpf_map_lookup_elem(&priorities, &application);

	return found ? *found : 0;
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
	priority = priority_of_port(ports[0]);
	return priority ? priority : priority_of_port(ports[1]);
}

// Writes a mark into the header of a packet with an Ethernet header; ECN bits stay.
static void write_mark(struct __sk_buff *skb, __u32 mark)
{
	__u16 old, new;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &old, sizeof(old)))
		return;
	old = bpf_ntohs(old);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		// Version and length, DSCP, ECN.
		new = (old & 0xff03) | mark << 2;
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		// Version, DSCP, ECN, and the flow label's first bits.
		new = (old & 0xf03f) | mark << 6;
	else
		return;
	if (new == old)
		return;
	old = bpf_htons(old);
	new = bpf_htons(new);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		bpf_l3_csum_replace(skb, ETH_HLEN + 10, old, new, sizeof(new));
	bpf_skb_store_bytes(skb, ETH_HLEN, &new, sizeof(new), 0);
}

SEC("classifier")
int mark(struct __sk_buff *skb)
{
	__u32 priority = priority_by_cgroup(skb);

	// The class of a cgroup has precedence over that of a port.
	if (!priority && is_class(skb->priority))
		priority = skb->priority;
	if (!priority && PORTS)
		priority = priority_by_ports(skb);
	if (!priority)
		return TC_ACT_UNSPEC;
	skb->priority = priority;
	write_mark(skb, priority - FIRST + 1);
	return TC_ACT_UNSPEC;
}
