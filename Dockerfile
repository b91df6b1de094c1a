# One broker: `docker run -p 9092:9092 ottla`, then point a client at localhost:9092.
# The base has a shell and its tools, as scripts that wrap an image expect; ottla itself is one static binary.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/ottla .

FROM alpine:3.22
COPY --from=build /out/ottla /usr/local/bin/ottla
# any user may run it: the data belongs to group 0, which a user without an entry in /etc/passwd has
RUN mkdir -p /var/lib/kafka/data && chown -R 1000:0 /var/lib/kafka && chmod -R 775 /var/lib/kafka
USER 1000
VOLUME /var/lib/kafka/data
EXPOSE 9092 9644
# the port opens when the broker is ready, and /readyz says so of the whole
HEALTHCHECK --interval=2s --timeout=2s --retries=15 CMD wget -q -O /dev/null http://127.0.0.1:9644/readyz || exit 1
# no entry point: what replaces the command replaces all of it
CMD ["ottla", "--data-dir", "/var/lib/kafka/data", "--http", ":9644", "--listen", "PLAINTEXT://:9092", "--set", "advertised.listeners=PLAINTEXT://localhost:9092"]
