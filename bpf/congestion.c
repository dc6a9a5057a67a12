// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// At the egress of a port of the testbed's switches: sets ECN "congestion experienced" in packets that find at least THRESHOLD packets in
// the port's queues, as a switch for DCTCP does. Only packets whose senders support ECN are marked. Counts what all packets find.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

// Of the two licences, the kernel accepts only this one.
char LICENSE[] SEC("license") = "GPL";

// Fields of kernel types that are read. Each kernel's BTF gives their offsets at load time (CO-RE).
struct qdisc_skb_head {
	__u32 qlen;
} __attribute__((preserve_access_index));

struct Qdisc {
	struct qdisc_skb_head q;
} __attribute__((preserve_access_index));

struct net_device {
	struct Qdisc *qdisc;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
} __attribute__((preserve_access_index));

// Set before loading.
volatile const __u32 THRESHOLD = 0;

// What arriving packets have found. crates/agent/src/ecn.rs reads it.
struct lengths {
	__u64 packets;
	// The sum and the maximum of the queues' lengths, in packets.
	__u64 sum;
	__u64 max;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lengths);
} lengths SEC(".maps");

SEC("classifier")
int congestion(struct __sk_buff *skb)
{
	struct sk_buff *packet = (struct sk_buff *)skb;
	__u32 length = BPF_CORE_READ(packet, dev, qdisc, q.qlen), first = 0;
	struct lengths *found = bpf_map_lookup_elem(&lengths, &first);

	if (found) {
		found->packets++;
		found->sum += length;
		if (length > found->max)
			found->max = length;
	}
	if (length >= THRESHOLD)
		bpf_skb_ecn_set_ce(skb);
	return TC_ACT_UNSPEC;
}
