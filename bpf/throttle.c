// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Two programs at an interface, for UDP over IPv4 with a class of Weir's. `arrive` counts what comes, and `limit` drops what a source
// sends beyond its limit, which the agent finds from what arrives (NetShare, 3.2). README.md has the maps.
//
// What has come together, or is cut further down, counts as the packets that are on the wire.

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

// The kernel is told the half of the licence that it knows.
char LICENSE[] SEC("license") = "GPL";

#define SECOND 1000000000ull

// What a source may send at once, as the time that its limit takes for that: two periods of those who measure. With less, what comes in
// bursts loses some of each, is measured as less, and so has less again.
#define BURST (SECOND / 10)

// Processors that send by the same way at the same time go on after each other. Who never has a turn goes on without, and is charged.
#define TURNS 8

// Set before loading: the first class, and how many there are. The first has the mark 1.
volatile const __u32 FIRST = 0;
volatile const __u32 CLASSES = 0;

// Addresses as they are in packets.
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

// A token bucket, kept as a time.
struct bucket {
	__u64 due;  // when the limit has let through what was sent, in ns of the monotonic clock
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

// Beside `limits`, which the agent writes again with each measure.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct way);
	__type(value, struct bucket);
} buckets SEC(".maps");

// Whose packet it is, if it is of UDP over IPv4. All fragments are.
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
		// Of too many, those that come last are not counted, and so nobody limits them.
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

	// Less than the first is more than all.
	if (class >= CLASSES || !way_of(skb, &way))
		return TC_ACT_UNSPEC;
	way.mark = class + 1;
	limit = bpf_map_lookup_elem(&limits, &way);
	now = bpf_ktime_get_ns();
	// A limit holds for its lease, also when nobody is there to take it back.
	if (!limit || !limit->rate || now >= limit->until)
		return TC_ACT_UNSPEC;
	bucket = bpf_map_lookup_elem(&buckets, &way);
	if (!bucket)
		return TC_ACT_UNSPEC;
	time = on_wire(skb) * SECOND / limit->rate;
	// A debt does not outlast a limit that was raised by long.
	if (time > SECOND)
		time = SECOND;
	for (int turn = 0; turn < TURNS; turn++) {
		__u64 due = *(volatile __u64 *)&bucket->due, begin = due > now ? due : now;

		// Whatever waits for nothing goes, however large it is: nobody is stopped.
		if (begin - now > BURST) {
			__sync_fetch_and_add(&bucket->lost, skb->len);
			return TC_ACT_SHOT;
		}
		if (__sync_val_compare_and_swap(&bucket->due, due, begin + time) == due)
			return TC_ACT_UNSPEC;
	}
	// Whoever had the turns has brought it up to now.
	__sync_fetch_and_add(&bucket->due, time);
	return TC_ACT_UNSPEC;
}
