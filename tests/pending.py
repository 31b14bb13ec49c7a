"""Operations whose issue has not come yet: they answer 501 in their envelope, which no document can promise."""

PENDING = {
    "list_pools",
    "create_pool",
    "get_pool",
    "delete_pool",
    "renew_pool",
    "get_bundle_configs",
    "get_bundle_config",
    "get_model_configs",
    "get_model_config_or_status",
    "get_model_config_status",
    "resolve_config",
    "status_page",
    "ws_cluster_status",
}
