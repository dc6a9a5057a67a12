// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Programs of another owner, as a container network loads them. Each counts its runs.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} runs SEC(".maps");

static void count(void)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&runs, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

// The last program of an interface.
SEC("classifier")
int accept(struct __sk_buff *skb)
{
	count();
	return TC_ACT_OK;
}

// The next program of the interface follows.
SEC("classifier")
int pass_on(struct __sk_buff *skb)
{
	count();
	return TC_ACT_UNSPEC;
}

// Removes the DSCP of IPv4 packets.
SEC("classifier")
int clear_mark(struct __sk_buff *skb)
{
	__u16 old, new;

	count();
	if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, ETH_HLEN, &old, sizeof(old)))
		return TC_ACT_OK;
	new = old & bpf_htons(0xff03);
	bpf_l3_csum_replace(skb, ETH_HLEN + 10, old, new, sizeof(new));
	bpf_skb_store_bytes(skb, ETH_HLEN, &new, sizeof(new), 0);
	return TC_ACT_OK;
}

SEC("cgroup_skb/egress")
int egress(struct __sk_buff *skb)
{
	count();
	return 1;
}

SEC("cgroup_skb/ingress")
int ingress(struct __sk_buff *skb)
{
	count();
	return 1;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *context)
{
	count();
	return 1;
}

SEC("cgroup/setsockopt")
int setsockopt(struct bpf_sockopt *context)
{
	count();
	return 1;
}

SEC("sockops")
int observe(struct bpf_sock_ops *ops)
{
	count();
	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	return 1;
}

// Replaces the events that other programs have asked for.
SEC("sockops")
int replace_events(struct bpf_sock_ops *ops)
{
	count();
	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(ops, BPF_SOCK_OPS_RETRANS_CB_FLAG);
	return 1;
}
