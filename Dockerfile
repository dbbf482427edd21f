# The command, and nothing else: docker build -t rlock . && docker run --rm rlock --url redis://HOST ls
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /rlock ./cmd/rlock

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /rlock /rlock
USER 65534:65534
ENTRYPOINT ["/rlock"]
