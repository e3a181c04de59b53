package api

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// writeCertificate writes a certificate that signs itself, and its key.
func writeCertificate(t *testing.T, certFile, keyFile, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	template := x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// overTLS serves h on a port of its own.
func overTLS(t *testing.T, h *Handler, c *Certificate) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(h)
	s.TLSConfig = c.Config()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return l.Addr().String()
}

func client(t *testing.T, http2 bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Streams come token by token over HTTP/1.1 and HTTP/2, and a client that goes away ends its sequence.
func TestStreamsOverTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	writeCertificate(t, certFile, keyFile, "first")
	cert, err := NewCertificate(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	step := make(chan struct{})
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "abcdef", Step: step} })
	address := overTLS(t, New(gen, Options{}), cert)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		resp, err := client(t, proto == "HTTP/2.0").Post("https://"+address+"/v1/completions", "application/json",
			strings.NewReader(`{"model":"M","prompt":"p","stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Proto != proto {
			t.Errorf("%s, want %s", resp.Proto, proto)
		}
		lines := bufio.NewScanner(resp.Body)
		text := ""
		for i := range 3 {
			step <- struct{}{}
			for lines.Scan() && !strings.Contains(lines.Text(), `"text":"`+"abcdef"[i:i+1]) {
				text += lines.Text()
			}
			if lines.Err() != nil {
				t.Fatalf("%s: token %d did not come: %v", proto, i, lines.Err())
			}
		}
		resp.Body.Close()
		eventually(t, proto+": the sequence ends with its client", func() bool { return gen.Stats().Models[0].Running == 0 })
	}
	// another certificate, without an end to what runs
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	writeCertificate(t, certFile, keyFile, "second")
	if err := cert.Reload(); err != nil {
		t.Fatal(err)
	}
	name := func() string {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(); got != "second" {
		t.Errorf("a new connection gets %s", got)
	}
	if err := os.WriteFile(keyFile, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cert.Reload(); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("garbage: %v", err)
	}
	if got := name(); got != "second" {
		t.Errorf("after garbage a new connection gets %s", got)
	}
	if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "200") {
		t.Errorf("the old connection: %q", line)
	}
	if _, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
}

// What is no handshake ends its own connection, and the rest are served.
func TestTLSGarbage(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	writeCertificate(t, certFile, keyFile, "name")
	cert, err := NewCertificate(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	address := overTLS(t, New(says("x"), Options{}), cert)
	for _, garbage := range []string{"\x16\x03\x01\xff\xff" + strings.Repeat("z", 70000), "\x16\x03\x01\x00\x05hello", "SSH-2.0-x\r\n", "\x00\x00\x00\x00\x00\x00", "\x80\x2e\x01\x00\x02", "\x16"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, garbage) // the server may hang up in the middle
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if all, _ := io.ReadAll(conn); !strings.Contains(string(all), "HTTP request to an HTTPS server") {
		t.Errorf("plain HTTP gets %q", all)
	}
	resp, err := client(t, true).Get("https://" + address + "/health")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
}
