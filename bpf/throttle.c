// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Two programs at an interface, for UDP with a class of Weir's. `arrive` counts arriving bytes, from which the agent of the
// source computes its limit (NetShare, 3.2). Under the allocator, `limit` counts the bytes that sources send before their limits instead,
// and the coordinator computes limits (3.3). `limit` drops packets of a source beyond its limit. README.md lists the maps.
//
// Packets that GRO merged, or that GSO splits later, count as the packets on the wire. Packets of tunnels neither count nor have a limit:
// it would hold back the TCP inside.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "extensions.h"

// Of the two licences, the kernel accepts only this one.
char LICENSE[] SEC("license") = "GPL";

#define SECOND 1000000000ull

// Burst that a source may send, as time at its limit: two measuring periods. With a smaller one, a source that sends in bursts loses part
// of each burst, is measured lower, and gets an even lower limit.
#define BURST (SECOND / 10)

// Attempts to update a bucket that several processors use concurrently. After the last attempt the packet passes, and its bytes are
// still added to the bucket.
#define MAX_ATTEMPTS 8

// Set before loading: the priority of the first class, whose mark is 1, the number of classes, and whether bytes count that sources send.
volatile const __u32 FIRST = 0;
volatile const __u32 CLASSES = 0;
volatile const __u32 COUNT_SENT = 0;

// Addresses in network byte order; IPv4 addresses are ::ffff:a.b.c.d.
struct udp_flow {
	__u32 src[4];
	__u32 dst[4];
	__u8 mark;
	__u8 padding[3];
};

struct udp_packet {
	struct udp_flow flow;
	__u32 headers;  // bytes up to and including the header of UDP
	bool has_ports; // not a later fragment
};

struct limit {
	__u64 rate;      // bytes per second
	__u64 lease_end; // ns of the monotonic clock
};

// A token bucket, stored as a time.
struct bucket {
	__u64 due;     // when all sent bytes have passed at the limit, in ns of the monotonic clock
	__u64 dropped; // bytes
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct udp_flow);
	__type(value, __u64);
} bytes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct udp_flow);
	__type(value, struct limit);
} limits SEC(".maps");

// Ports of tunnels, in network byte order.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u16);
	__type(value, __u8);
} tunnel_ports SEC(".maps");

// Separate from `limits`, which the agent overwrites with each measurement.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct udp_flow);
	__type(value, struct bucket);
} buckets SEC(".maps");

static bool read_ipv4(struct __sk_buff *skb, struct udp_packet *packet)
{
	struct udp_flow *flow = &packet->flow;
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.protocol != IPPROTO_UDP)
		return false;
	flow->src[2] = flow->dst[2] = bpf_htonl(0xffff);
	flow->src[3] = ip.saddr;
	flow->dst[3] = ip.daddr;
	flow->mark = ip.tos >> 2;
	packet->headers = ETH_HLEN + ip.ihl * 4 + sizeof(struct udphdr);
	packet->has_ports = !(ip.frag_off & bpf_htons(0x1fff));
	return true;
}

static bool read_ipv6(struct __sk_buff *skb, struct udp_packet *packet)
{
	struct udp_flow *flow = &packet->flow;
	struct packet_header header = { .offset = ETH_HLEN + sizeof(struct ipv6hdr) };
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return false;
	header.protocol = ip.nexthdr;
	if (!skip_extensions(skb, &header) || header.protocol != IPPROTO_UDP)
		return false;
	__builtin_memcpy(flow->src, &ip.saddr, sizeof(flow->src));
	__builtin_memcpy(flow->dst, &ip.daddr, sizeof(flow->dst));
	flow->mark = (ip.priority << 4 | ip.flow_lbl[0] >> 4) >> 2;
	packet->headers = header.offset + sizeof(struct udphdr);
	packet->has_ports = !header.is_in_first_fragment;
	return true;
}

// Source, destination and mark of a packet of UDP, also of a fragment.
static bool read_packet(struct __sk_buff *skb, struct udp_packet *packet)
{
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return read_ipv4(skb, packet);
	return skb->protocol == bpf_htons(ETH_P_IPV6) && read_ipv6(skb, packet);
}

// Whether the packet has the port of a tunnel at either end.
static bool is_tunnel(struct __sk_buff *skb, const struct udp_packet *packet)
{
	__u16 ports[2];

	if (!packet->has_ports || bpf_skb_load_bytes(skb, packet->headers - sizeof(struct udphdr), ports, sizeof(ports)))
		return false;
	return bpf_map_lookup_elem(&tunnel_ports, &ports[0]) || bpf_map_lookup_elem(&tunnel_ports, &ports[1]);
}

// Bytes of the packets on the wire: GSO and GRO merge several packets of the same headers.
static __u64 wire_bytes(struct __sk_buff *skb, const struct udp_packet *packet)
{
	__u32 packets = skb->gso_segs;

	return skb->len + (packets > 1 ? (packets - 1) * (__u64)packet->headers : 0);
}

static void count(struct __sk_buff *skb, const struct udp_packet *packet)
{
	const struct udp_flow *flow = &packet->flow;
	__u64 *counted = bpf_map_lookup_elem(&bytes, flow), zero = 0;

	if (!counted) {
		// If the map is full, a new flow is not counted, and its source is not limited.
		bpf_map_update_elem(&bytes, flow, &zero, BPF_NOEXIST);
		counted = bpf_map_lookup_elem(&bytes, flow);
	}
	if (counted)
		__sync_fetch_and_add(counted, wire_bytes(skb, packet));
}

SEC("classifier")
int arrive(struct __sk_buff *skb)
{
	struct udp_packet packet = {};

	if (COUNT_SENT || !read_packet(skb, &packet) || !packet.flow.mark || packet.flow.mark > CLASSES ||
	    is_tunnel(skb, &packet))
		return TC_ACT_UNSPEC;
	count(skb, &packet);
	return TC_ACT_UNSPEC;
}

SEC("classifier")
int limit(struct __sk_buff *skb)
{
	__u32 class = skb->priority - FIRST;
	struct bucket *bucket;
	struct limit *limit;
	struct udp_packet packet = {};
	__u64 now, duration;

	// A priority below FIRST wraps to a large number.
	if (class >= CLASSES || !read_packet(skb, &packet) || is_tunnel(skb, &packet))
		return TC_ACT_UNSPEC;
	packet.flow.mark = class + 1;
	if (COUNT_SENT)
		count(skb, &packet);
	limit = bpf_map_lookup_elem(&limits, &packet.flow);
	now = bpf_ktime_get_ns();
	// A limit holds for its lease, even if the agent has exited.
	if (!limit || !limit->rate || now >= limit->lease_end)
		return TC_ACT_UNSPEC;
	bucket = bpf_map_lookup_elem(&buckets, &packet.flow);
	if (!bucket)
		return TC_ACT_UNSPEC;
	duration = wire_bytes(skb, &packet) * SECOND / limit->rate;
	// A packet adds 1 s at most, so a low limit does not delay packets for long after the limit rises.
	if (duration > SECOND)
		duration = SECOND;
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		__u64 due = *(volatile __u64 *)&bucket->due, begin = due > now ? due : now;

		// A packet passes if the bucket is within its burst, whatever the size of the packet: no source is stopped.
		if (begin - now > BURST) {
			__sync_fetch_and_add(&bucket->dropped, skb->len);
			return TC_ACT_SHOT;
		}
		if (__sync_val_compare_and_swap(&bucket->due, due, begin + duration) == due)
			return TC_ACT_UNSPEC;
	}
	// The other processors have moved `due` to at least now.
	__sync_fetch_and_add(&bucket->due, duration);
	return TC_ACT_UNSPEC;
}
