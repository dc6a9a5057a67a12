// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// `mark`, at the egress of an interface: sets the mark (DSCP) and the priority of packets that have a class of Weir's. The class is that of
// the innermost cgroup of the packet's socket that has one, or that of the ports. The socket is still known behind most tunnels.
//
// Routing and the rules of bridges forget the socket, and the kernel clears the priority of packets that leave a pod's network namespace.
// So `from_pod` writes the mark where packets of a pod enter that of the host, and `into_tunnel` makes the mark of such a packet the
// priority of the packet around it.

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

struct marked_key {
	__u32 interface;
	__u32 mark;
};

// The bytes of each mark that left this interface, as its queues count them. Packets without a mark count as mark 0.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct marked_key);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} marked_bytes SEC(".maps");

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

// The mark of a packet; 0 if it is no IP packet.
static __u32 read_mark(struct __sk_buff *skb)
{
	__u16 head;

	// Tunnels may have no Ethernet header.
	if (bpf_skb_load_bytes_relative(skb, 0, &head, sizeof(head), BPF_HDR_START_NET))
		return 0;
	head = bpf_ntohs(head);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return head >> 2 & 63;
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return head >> 6 & 63;
	return 0;
}

// The priority by the mark of a packet that this host forwards, and whose socket is unknown; 0 without a mark of an application.
static __u32 priority_by_mark(struct __sk_buff *skb)
{
	__u32 mark;

	if (!skb->ingress_ifindex || skb->sk)
		return 0;
	mark = read_mark(skb);
	return mark && bpf_map_lookup_elem(&used_marks, &mark) ? FIRST + mark - 1 : 0;
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
	__u32 offset, priority;
	__u16 ports[2];
	__u8 protocol;

	if (skb->ingress_ifindex)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET) ||
		    ip.frag_off & bpf_htons(0x3fff))
			return 0;
		protocol = ip.protocol;
		offset = ip.ihl * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes_relative(skb, 6, &protocol, sizeof(protocol), BPF_HDR_START_NET))
			return 0;
		offset = sizeof(struct ipv6hdr);
	} else {
		return 0;
	}
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return 0;
	if (bpf_skb_load_bytes_relative(skb, offset, ports, sizeof(ports), BPF_HDR_START_NET))
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

// Removes the mark of a pod's packet that has no class, if it is the mark of an application: pods do not choose their class. Other marks
// stay.
static void remove_forged_mark(struct __sk_buff *skb)
{
	__u32 mark;

	if (!skb->ingress_ifindex || !skb->sk)
		return;
	mark = read_mark(skb);
	if (mark && bpf_map_lookup_elem(&used_marks, &mark))
		write_mark(skb, 0);
}

SEC("classifier")
int from_pod(struct __sk_buff *skb)
{
	__u32 priority = priority_by_cgroup(skb);

	if (priority)
		write_mark(skb, priority - FIRST + 1);
	else
		remove_forged_mark(skb);
	return TC_ACT_UNSPEC;
}

// The priority of the class of a packet that leaves this host or enters a tunnel; 0 without a class.
static __u32 find_priority(struct __sk_buff *skb)
{
	__u32 priority = priority_by_cgroup(skb);

	// That of the socket, or `into_tunnel` has set it.
	if (!priority && is_class(skb->priority))
		priority = skb->priority;
	if (!priority && PORTS)
		priority = priority_by_ports(skb);
	return priority ? priority : priority_by_mark(skb);
}

SEC("classifier")
int into_tunnel(struct __sk_buff *skb)
{
	__u32 priority = find_priority(skb);

	if (priority)
		skb->priority = priority;
	return TC_ACT_UNSPEC;
}

// Counts a packet by its mark, also one that its program has set.
static void count_marked(struct __sk_buff *skb)
{
	struct marked_key key = { .interface = skb->ifindex, .mark = read_mark(skb) };
	__u64 *bytes = bpf_map_lookup_elem(&marked_bytes, &key), zero = 0;

	if (!bytes) {
		bpf_map_update_elem(&marked_bytes, &key, &zero, BPF_NOEXIST);
		bytes = bpf_map_lookup_elem(&marked_bytes, &key);
	}
	if (bytes)
		__sync_fetch_and_add(bytes, skb->wire_len);
}

static void set_class(struct __sk_buff *skb)
{
	__u32 priority = find_priority(skb);

	if (!priority) {
		remove_forged_mark(skb);
		return;
	}
	skb->priority = priority;
	write_mark(skb, priority - FIRST + 1);
}

SEC("classifier")
int mark(struct __sk_buff *skb)
{
	set_class(skb);
	count_marked(skb);
	return TC_ACT_UNSPEC;
}
