// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// At the egress of a port of the testbed's switches: sets ECN "congestion experienced" in packets that find at least THRESHOLD packets in
// the port's queues, as a switch for DCTCP does. Only packets whose senders support ECN are marked.

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

SEC("classifier")
int congestion(struct __sk_buff *skb)
{
	struct sk_buff *packet = (struct sk_buff *)skb;

	if (BPF_CORE_READ(packet, dev, qdisc, q.qlen) >= THRESHOLD)
		bpf_skb_ecn_set_ce(skb);
	return TC_ACT_UNSPEC;
}
