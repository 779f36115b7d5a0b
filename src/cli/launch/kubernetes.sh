#!/bin/sh
# Nodes as the pods of a StatefulSet of Kubernetes 1.33 or later.
#
#   sh kubernetes.sh up [OPTION OF droste serve...]     prints the manifest, for kubectl apply -f -
#   sh kubernetes.sh down                               deletes what it made, with kubectl
#   sh kubernetes.sh status
#
# `droste cluster` runs it with these variables:
#   CLUSTER    the cluster's name: that of the objects, after "droste-"
#   JOIN       the addresses of NATS
#   NODES      the number of pods
#   MOST       with autoscaling, at most so many; empty: no autoscaling
#   NAMESPACE  that of the objects, which is there
#   PORT       where each node listens
#   IMAGE      the container's image (make image)
#
# A secret droste-keys has the file keys.json (docs/deploy.md); with autoscaling, droste-metrics has
# in `key` one of its keys with the scope metrics. A pod drains when it is removed; its record stays
# on its claim, and the pod of that name takes it over.
set -eu
name=droste-$CLUSTER

# A word as a scalar of YAML; JSON's strings are those of YAML.
quote()
{
    printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"
}

up()
{
    words=
    for word; do
        words="$words, $(quote "$word")"
    done
    cat <<END
# Pods have names of their own, by which the nodes reach each other.
apiVersion: v1
kind: Service
metadata:
  namespace: $NAMESPACE
  name: $name-nodes
  labels: {app.kubernetes.io/name: droste, app.kubernetes.io/instance: $name}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app.kubernetes.io/instance: $name}
  ports:
    - {name: http, port: $PORT, targetPort: http}
---
# For clients: any node answers for all.
apiVersion: v1
kind: Service
metadata:
  namespace: $NAMESPACE
  name: $name
  labels: {app.kubernetes.io/name: droste, app.kubernetes.io/instance: $name}
spec:
  selector: {app.kubernetes.io/instance: $name}
  ports:
    - {name: http, port: 80, targetPort: http}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  namespace: $NAMESPACE
  name: $name
  labels: {app.kubernetes.io/name: droste, app.kubernetes.io/instance: $name}
spec:
  serviceName: $name-nodes
  replicas: $NODES
  podManagementPolicy: Parallel
  # One at a time: each drains, and is back before the next one leaves.
  updateStrategy: {type: RollingUpdate}
  selector:
    matchLabels: {app.kubernetes.io/instance: $name}
  template:
    metadata:
      labels: {app.kubernetes.io/name: droste, app.kubernetes.io/instance: $name}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      hostUsers: false
      terminationGracePeriodSeconds: 45
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {app.kubernetes.io/instance: $name}
      securityContext:
        runAsNonRoot: true
        runAsUser: 871
        runAsGroup: 871
        fsGroup: 871
        # See packaging/kubernetes/droste.yaml for what these two are for.
        seccompProfile: {type: Unconfined}
      containers:
        - name: droste
          image: $(quote "$IMAGE")
          env:
            - name: POD
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: ADDRESS
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
          args: [serve, --join, $(quote "$JOIN"), --node, "\$(POD)", --listen, "0.0.0.0:$PORT",
                 --advertise, "\$(ADDRESS):$PORT", --keys, /etc/droste/keys.json$words]
          ports:
            - {name: http, containerPort: $PORT}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
            procMount: Unmasked
          resources:
            requests: {cpu: "1", memory: 1Gi}
            limits: {memory: 8Gi}
          startupProbe:
            httpGet: {path: /ready, port: http}
            periodSeconds: 1
            failureThreshold: 60
          readinessProbe:
            httpGet: {path: /ready, port: http}
            periodSeconds: 5
          livenessProbe:
            httpGet: {path: /health, port: http}
            periodSeconds: 10
            timeoutSeconds: 5
          volumeMounts:
            - {name: data, mountPath: /var/lib/droste}
            - {name: keys, mountPath: /etc/droste, readOnly: true}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - name: keys
          secret: {secretName: droste-keys, defaultMode: 0440}
        - name: tmp
          emptyDir: {sizeLimit: 8Gi}
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: [ReadWriteOnce]
        resources:
          requests:
            storage: 10Gi
---
# No more than one node leaves at a time when machines are drained.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  namespace: $NAMESPACE
  name: $name
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app.kubernetes.io/instance: $name}
END
    [ -z "$MOST" ] || cat <<END
---
# Needs KEDA. A pod more for every 100 runs in the queue.
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  namespace: $NAMESPACE
  name: $name
spec:
  secretTargetRef:
    - {parameter: apiKey, name: droste-metrics, key: key}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  namespace: $NAMESPACE
  name: $name
spec:
  scaleTargetRef: {kind: StatefulSet, name: $name}
  minReplicaCount: $NODES
  maxReplicaCount: $MOST
  triggers:
    - type: metrics-api
      metadata:
        url: "http://$name.$NAMESPACE/metrics"
        format: prometheus
        valueLocation: droste_cluster_queued_runs
        targetValue: "100"
        authMode: apiKey
        method: header
        keyParamName: X-API-Key
      authenticationRef: {name: $name}
END
}

down()
{
    [ -z "$MOST" ] || kubectl -n "$NAMESPACE" delete --ignore-not-found "scaledobject/$name" \
        "triggerauthentication/$name"
    kubectl -n "$NAMESPACE" delete --ignore-not-found "statefulset/$name" "service/$name" "service/$name-nodes" \
        "poddisruptionbudget/$name"
    echo "the claims of the nodes stay; kubectl -n $NAMESPACE delete pvc -l app.kubernetes.io/instance=$name"
}

status()
{
    kubectl -n "$NAMESPACE" get pods -l "app.kubernetes.io/instance=$name" -o wide
}

case ${1-} in
up | down | status) command=$1 && shift && "$command" "$@" ;;
*) echo "usage: kubernetes.sh up|down|status" >&2 && exit 2 ;;
esac
