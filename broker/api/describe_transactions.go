package api

import (
	"context"

	"ottla/broker/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeTransactions tells the state of transactional ids that this broker coordinates (KIP-664),
// with those of their partitions that the client may see.
func (s *API) describeTransactions(ctx context.Context, p *Peer, req *kmsg.DescribeTransactionsRequest) (*kmsg.DescribeTransactionsResponse, error) {
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	resp.TransactionStates = make([]kmsg.DescribeTransactionsResponseTransactionState, 0, len(req.TransactionalIDs))
	for _, id := range req.TransactionalIDs {
		st := kmsg.NewDescribeTransactionsResponseTransactionState()
		st.TransactionalID = id
		st.Topics = []kmsg.DescribeTransactionsResponseTransactionStateTopic{}
		if s.allowed(p, auth.Describe, auth.TransactionalID, id) {
			s.describeTransaction(ctx, p, &st)
		} else {
			st.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		}
		resp.TransactionStates = append(resp.TransactionStates, st)
	}
	return resp, nil
}

func (s *API) describeTransaction(ctx context.Context, p *Peer, st *kmsg.DescribeTransactionsResponseTransactionState) {
	d, err := s.Txns.Describe(ctx, st.TransactionalID)
	if err != nil {
		st.ErrorCode = code(ctx, err)
		return
	}
	st.State, st.TimeoutMillis, st.StartTimestamp = d.State.String(), d.Timeout, d.Started
	st.ProducerID, st.ProducerEpoch = d.Producer.ID, d.Producer.Epoch
	may := false
	for i, at := range d.Partitions {
		if i == 0 || d.Partitions[i-1].Topic != at.Topic {
			if may = s.allowed(p, auth.Describe, auth.Topic, at.Topic); may {
				t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
				t.Topic = at.Topic
				st.Topics = append(st.Topics, t)
			}
		}
		if may {
			t := &st.Topics[len(st.Topics)-1]
			t.Partitions = append(t.Partitions, at.Number)
		}
	}
}
