package pipeline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/kuadrant/authorino/pkg/service"
)

// Measurement is the cost of one Check.
type Measurement struct {
	N           int     `json:"n"`
	NsPerOp     float64 `json:"nsPerOp"`
	AllocsPerOp int64   `json:"allocsPerOp"`
	BytesPerOp  int64   `json:"bytesPerOp"`
	// Result is the verdict of the measured request.
	Result Result `json:"result"`
}

// Bench measures Authorino's Check alone, with the AuthConfigs as Kuadrant writes
// them, for about the given time (one second when zero).
func (j *Judge) Bench(request Request, duration time.Duration) (Measurement, error) {
	result, err := j.Check(request)
	if err != nil {
		return Measurement{}, err
	}

	if result.AuthConfig == "" || result.Crash || result.Reason == reasonWhen {
		return Measurement{}, fmt.Errorf("nothing to measure: Authorino is not asked for this request (%s)", result.Reason)
	}

	authorino, err := j.unobserved()
	if err != nil {
		return Measurement{}, err
	}

	if duration <= 0 {
		duration = time.Second
	}

	testing.Init()

	if err := flag.Set("test.benchtime", duration.String()); err != nil {
		return Measurement{}, fmt.Errorf("benchtime %s: %w", duration, err)
	}

	call := request.checkRequest(result.AuthConfig)
	measured := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()

		for range b.N {
			if _, err := authorino.Check(context.Background(), call); err != nil {
				b.Fatal(err)
			}
		}
	})

	if measured.N == 0 {
		return Measurement{}, errors.New("the measurement failed: Authorino's Check returned an error")
	}

	return Measurement{
		N: measured.N, NsPerOp: float64(measured.T.Nanoseconds()) / float64(measured.N),
		AllocsPerOp: measured.AllocsPerOp(), BytesPerOp: measured.AllocedBytesPerOp(), Result: result,
	}, nil
}

// unobserved is Authorino without the judge's response item.
func (j *Judge) unobserved() (*service.AuthService, error) {
	if !j.observed {
		return j.store.service(), nil
	}

	if j.plain == nil {
		plain, err := newStore(j.configs, (*authConfig).written, j.reviews.URL)
		if err != nil {
			return nil, err
		}

		for _, config := range j.configs {
			plain.reconcile(config)
		}

		j.plain = plain
	}

	return j.plain.service(), nil
}
