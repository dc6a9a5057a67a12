// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// At a port of the testbed's switches, where packets leave it: those that find at least so many in the port's queues are marked
// (ECN: congestion experienced), as by a switch that DCTCP is made for. Only packets of senders that understand marks are.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

// The kernel is told the half of the licence that it knows.
char LICENSE[] SEC("license") = "GPL";

// What is looked at of the kernel's own types. Where in them it is, each kernel says.
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
