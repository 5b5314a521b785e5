package server

import (
	"context"
	"fmt"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// StartLog returns a context with the log of this process, which begins with what it was built from.
func StartLog(ctx context.Context, verbosity int) (context.Context, error) {
	logger, err := newLogger(verbosity)
	if err != nil {
		return nil, err
	}
	klog.SetLogger(logger)
	built := version.Get()
	logger.Info("Starting", "version", built.Version, "commit", built.Commit, "go", built.GoVersion)
	return klog.NewContext(ctx, logger), nil
}

func newLogger(verbosity int) (klog.Logger, error) {
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(zapcore.Level(-verbosity)) // zapr's V(n) is zap's level -n
	config.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	config.EncoderConfig.EncodeLevel = func(l zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
		zapcore.LowercaseLevelEncoder(max(l, zapcore.DebugLevel), enc)
	}
	config.Sampling = nil
	config.DisableStacktrace = true
	logger, err := config.Build()
	if err != nil {
		return klog.Logger{}, fmt.Errorf("making a logger: %w", err)
	}
	return zapr.NewLogger(logger), nil
}
