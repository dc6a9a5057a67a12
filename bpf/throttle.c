// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Two programs at an interface, for UDP over IPv4 with a class of Weir's. `arrive` counts arriving bytes. `limit` drops packets of a source
// beyond its limit, which the agent computes from arriving bytes (NetShare, 3.2). README.md lists the maps.
//
// Packets that GRO merged, or that GSO splits later, count as the packets on the wire.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// The kernel knows only this one of the two licences.
char LICENSE[] SEC("license") = "GPL";

#define SECOND 1000000000ull

// Burst that a source may send, as time at its limit: two measuring periods. With a smaller one, a source that sends in bursts loses part
// of each burst, is measured lower, and gets an even lower limit.
#define BURST (SECOND / 10)

// Attempts to update a bucket that several processors use concurrently. After the last one the packet passes, and is charged.
#define TURNS 8

// Set before loading: the priority of the first class, whose mark is 1, and the number of classes.
volatile const __u32 FIRST = 0;
volatile const __u32 CLASSES = 0;

// Addresses in network byte order.
struct way {
	__u32 from;
	__u32 to;
	__u8 mark;
	__u8 zero[3];
};

struct limit {
	__u64 rate;  // bytes per second
	__u64 until; // ns of the monotonic clock
};

// A token bucket, stored as a time.
struct bucket {
	__u64 due;  // when all sent bytes have passed at the limit, in ns of the monotonic clock
	__u64 lost; // bytes
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct way);
	__type(value, __u64);
} arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct way);
	__type(value, struct limit);
} limits SEC(".maps");

// Separate from `limits`, which the agent overwrites with each measurement.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct way);
	__type(value, struct bucket);
} buckets SEC(".maps");

// Source, destination and mark of a packet of UDP over IPv4, also of a fragment.
static bool way_of(struct __sk_buff *skb, struct way *way)
{
	struct iphdr ip;

	if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) ||
	    ip.protocol != IPPROTO_UDP)
		return false;
	way->from = ip.saddr;
	way->to = ip.daddr;
	way->mark = ip.tos >> 2;
	return true;
}

static __u64 on_wire(struct __sk_buff *skb)
{
	__u64 headers = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr);
	__u32 packets = skb->gso_segs;

	return skb->len + (packets > 1 ? (packets - 1) * headers : 0);
}

SEC("classifier")
int arrive(struct __sk_buff *skb)
{
	struct way way = {};
	__u64 *bytes, none = 0;

	if (!way_of(skb, &way) || !way.mark || way.mark > CLASSES)
		return TC_ACT_UNSPEC;
	bytes = bpf_map_lookup_elem(&arrivals, &way);
	if (!bytes) {
		// If the map is full, a new entry is not counted, and its source not limited.
		bpf_map_update_elem(&arrivals, &way, &none, BPF_NOEXIST);
		bytes = bpf_map_lookup_elem(&arrivals, &way);
	}
	if (bytes)
		__sync_fetch_and_add(bytes, on_wire(skb));
	return TC_ACT_UNSPEC;
}

SEC("classifier")
int limit(struct __sk_buff *skb)
{
	__u32 class = skb->priority - FIRST;
	struct bucket *bucket;
	struct limit *limit;
	struct way way = {};
	__u64 now, time;

	// A priority below FIRST wraps to a large number.
	if (class >= CLASSES || !way_of(skb, &way))
		return TC_ACT_UNSPEC;
	way.mark = class + 1;
	limit = bpf_map_lookup_elem(&limits, &way);
	now = bpf_ktime_get_ns();
	// A limit holds for its lease, even if the agent is gone.
	if (!limit || !limit->rate || now >= limit->until)
		return TC_ACT_UNSPEC;
	bucket = bpf_map_lookup_elem(&buckets, &way);
	if (!bucket)
		return TC_ACT_UNSPEC;
	time = on_wire(skb) * SECOND / limit->rate;
	// A packet costs 1 s at most: a debt at a low limit ends soon after the limit rises.
	if (time > SECOND)
		time = SECOND;
	for (int turn = 0; turn < TURNS; turn++) {
		__u64 due = *(volatile __u64 *)&bucket->due, begin = due > now ? due : now;

		// A packet that need not wait passes, whatever its size: no source is stopped.
		if (begin - now > BURST) {
			__sync_fetch_and_add(&bucket->lost, skb->len);
			return TC_ACT_SHOT;
		}
		if (__sync_val_compare_and_swap(&bucket->due, due, begin + time) == due)
			return TC_ACT_UNSPEC;
	}
	// The other processors have moved `due` to at least now.
	__sync_fetch_and_add(&bucket->due, time);
	return TC_ACT_UNSPEC;
}
